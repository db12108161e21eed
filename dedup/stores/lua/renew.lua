-- Lets the lease begin anew where the run is still this attempt's.
-- ARGV: attempt_id, lease_seconds, retention_seconds. Gives the server's time, or nothing where it isn't.

local now = clock()
if not is_held_by(read_holder(), ARGV[1]) then
    return false
end
hold(tonumber(ARGV[2]), tonumber(ARGV[3]), now, 'renewed_at', digits(now))
return now
