-- Ends the attempt where the run is still its own.
-- ARGV: attempt_id, how it ends, whether a try of its claim may still be on its way ('late' or ''), when it handed the run over to
-- longer work ('' if it didn't), then the fields to write and their values in turn. Gives 1 where the run stands as wanted: a finish
-- whose reply was lost is sent again, and finds itself.

local run, now = read_holder(), clock()
local attempt_id, ending, claim_may_be_late = ARGV[1], ARGV[2], ARGV[3] == 'late'
local handed_over = ARGV[4]

-- Work that has begun writes in the same name: what it has written isn't this attempt's to end.
local is_the_works = handed_over ~= '' and run ~= nil and run.updated_at ~= handed_over

if is_the_works or not is_held_by(run, attempt_id) then
    if ending == 'released' then
        return (run == nil or run.released_by == attempt_id) and 1 or 0
    end
    return run and run.attempt_id == attempt_id and run.status == ending and 1 or 0
end

if ending ~= 'released' then
    local written = digits(now)
    redis.call('HSET', KEYS[1], 'status', ending, 'updated_at', written, 'finished_at', written, unpack(ARGV, 5))
elseif claim_may_be_late then
    -- It would find nothing after a DEL, and claim the run with nobody at work. This keeps it out, and nobody else.
    redis.call('HSET', KEYS[1], 'released_by', attempt_id, 'lease_seconds', '0', 'lease_expires', '0')
else
    redis.call('DEL', KEYS[1])
end
return 1
