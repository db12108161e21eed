-- Claims the run, or says why not.
-- ARGV: attempt_id, lease_seconds, retention_seconds, then the fields of a new record and their values in turn.
-- Gives the decision, the server's time, and how many attempts there have been; in place of these, the record, if it is another's.

local attempt_id, lease_seconds, retention_seconds = ARGV[1], ARGV[2], ARGV[3]
local now, found = clock(), redis.call('HGETALL', KEYS[1])

local function claim(attempts)
    local written = digits(now)
    hold(lease_seconds, retention_seconds, now, written,
        'status', 'in_progress',
        'attempt_id', attempt_id,
        'attempts', digits(attempts),
        'claimed_at', written,
        unpack(ARGV, 4))
    return {'claim', now, attempts}
end

-- Nearly always the run is new. The rest of this script is for the others, which can wait for it to be set up.
if #found == 0 then
    return claim(1)
end

local DAY = 86400 * SECOND
local LONGEST_LEASE = 1000000000

-- decide() of dedup/record.py, in the only place where Redis lets reading and writing be one. A test holds the two together.
local function decide(run)
    if run.status == 'completed' or run.status == 'failed' then
        return run.status
    end

    local lease = number(run.lease_seconds)
    if lease and lease > LONGEST_LEASE then
        lease = nil
    end
    local lease_expires = nil
    if lease or run.lease_seconds == nil then
        lease_expires = number(run.lease_expires)
    end
    local written = number(run.updated_at) or now -- edited by hand, beyond reading: as if written just now
    local malformed = run.status ~= 'in_progress' or (run.attempt_id or '') == '' or not (lease or lease_expires)

    local live_until
    if malformed then
        live_until = number(run.expire_at) or written + DAY
    elseif lease then
        live_until = written + lease * SECOND
    else
        live_until = lease_expires
    end

    if now >= live_until then
        return 'claim'
    end
    if run.attempt_id == attempt_id and not malformed then
        return 'held'
    end
    return 'in progress'
end

local run = {}
for at = 1, #found, 2 do
    run[found[at]] = found[at + 1]
end
local decision = decide(run)
if run.released_by == attempt_id then
    -- A try that comes late, after its attempt has given the run up: it must not hold the run with nobody at work.
    decision = 'in progress'
end

if decision == 'claim' then
    redis.call('DEL', KEYS[1]) -- with it goes what the dead attempt left
    return claim(math.max(number(run.attempts) or 1, 1) + 1)
end
if decision == 'held' then
    hold(lease_seconds, retention_seconds, now, digits(now))
    return {decision, now, math.max(number(run.attempts) or 1, 1)}
end
return {decision, now, found}
