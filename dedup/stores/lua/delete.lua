-- Deletes the record of a run if it is as somebody has seen it.
-- ARGV: when it was written last, as it was seen. One that says it beyond reading, no attempt of ours has written since.
-- Gives 'deleted', 'changed', or 'gone' where there is none.

local run = read_holder()
if run == nil then
    return 'gone'
end
if (number(run.updated_at) or tonumber(ARGV[1])) ~= tonumber(ARGV[1]) then
    return 'changed'
end
redis.call('DEL', KEYS[1])
return 'deleted'
