-- What every script begins with: the server's clock, and how the record of the run in KEYS[1] is held.
-- Times are microseconds since 1970: a double holds them exactly until the year 2255.

local SECOND = 1000000

-- Redis keeps text. Digits alone are a number, as for the reader in Python: tonumber() would take '0x10', '1e3' and ' 5 ' too.
local function number(text)
    if text and #text <= 16 and text:match('^%d+$') then
        return tonumber(text)
    end
    return nil
end

-- What is written is text: given a number, Redis 7.2.0 to 7.2.4 would write 1e+9 for some (redis/redis issue 13113).
-- %d takes a long, of a server of 64 bits; %.0f, which prints a double, takes several times as long.
local function digits(value)
    return string.format('%d', value)
end

-- The master's clock. An instance's own decides nothing.
local function clock()
    local time = redis.call('TIME')
    return tonumber(time[1]) * SECOND + tonumber(time[2])
end

-- Whose the run is, and when it was written last: what those ask who don't want to claim it.
local function read_holder()
    local found = redis.call('HMGET', KEYS[1], 'status', 'attempt_id', 'released_by', 'updated_at')
    local run = {
        status = found[1] or nil,
        attempt_id = found[2] or nil,
        released_by = found[3] or nil,
        updated_at = found[4] or nil,
    }
    if next(run) == nil and redis.call('EXISTS', KEYS[1]) == 0 then
        return nil
    end
    return run
end

local function is_held_by(run, attempt_id)
    return run ~= nil and run.status == 'in_progress' and run.attempt_id == attempt_id and run.released_by ~= attempt_id
end

-- The lease, and the key's end: what a TTL policy does elsewhere. What else there is to write goes with them, in one command.
-- The seconds are text, as they came; `written` is now as text.
local function hold(lease_seconds, retention_seconds, now, written, ...)
    local expire_at = now + retention_seconds * SECOND
    redis.call('HSET', KEYS[1],
        'updated_at', written,
        'lease_seconds', lease_seconds,
        'lease_expires', digits(now + lease_seconds * SECOND),
        'expire_at', digits(expire_at),
        ...)
    redis.call('PEXPIREAT', KEYS[1], digits(math.ceil(expire_at / 1000)))
end
