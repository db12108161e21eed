-- Claims the run, or says why not.
-- ARGV: attempt_id, lease_seconds, retention_seconds, then the fields of a new record and their values in turn.
-- Gives the decision, the server's time, and how many attempts there have been; in place of these, the record, if it is another's.

local run, now = read(), clock()
local attempt_id, lease_seconds, retention_seconds = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local decision = decide(run, attempt_id, now)

if run and run.released_by == attempt_id then
    -- A try that comes late, after its attempt has given the run up: it must not hold the run with nobody at work.
    decision = 'in progress'
end

local attempts = run and math.max(number(run.attempts) or 1, 1) or 0
if decision == 'claim' then
    attempts = attempts + 1
    if run then
        redis.call('DEL', KEYS[1]) -- with it goes what the dead attempt left
    end
    hold(lease_seconds, retention_seconds, now,
        'status', 'in_progress',
        'attempt_id', attempt_id,
        'attempts', digits(attempts),
        'claimed_at', digits(now),
        unpack(ARGV, 4))
elseif decision == 'held' then
    hold(lease_seconds, retention_seconds, now)
else
    return {decision, now, redis.call('HGETALL', KEYS[1])}
end
return {decision, now, attempts}
