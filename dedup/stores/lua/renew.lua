-- Lets the lease begin anew where the run is still this attempt's.
-- ARGV: attempt_id, lease_seconds, retention_seconds. Gives the server's time, or nothing where it isn't.

local now = clock()
if not is_held_by(read_holder(), ARGV[1]) then
    return false
end
local written = digits(now)
hold(ARGV[2], ARGV[3], now, written, 'renewed_at', written)
return now
