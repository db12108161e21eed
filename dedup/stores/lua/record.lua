-- What every script begins with: the record of the run in KEYS[1], the server's clock, and the rule of a claim.
-- Times are microseconds since 1970: a double holds them exactly until the year 2255.

local SECOND = 1000000
local DAY = 86400 * SECOND
local LONGEST_LEASE = 1000000000

-- Redis keeps text. Digits alone are a number, as for the reader in Python: tonumber() would take '0x10', '1e3' and ' 5 ' too.
local function number(text)
    if text and #text <= 16 and text:match('^%d+$') then
        return tonumber(text)
    end
    return nil
end

-- What is written is text: given a number, Redis 7.2.0 to 7.2.4 would write 1e+9 for some (redis/redis issue 13113).
local function digits(value)
    return string.format('%.0f', value)
end

-- The master's clock. An instance's own decides nothing.
local function clock()
    local time = redis.call('TIME')
    return tonumber(time[1]) * SECOND + tonumber(time[2])
end

local function read()
    local pairs_of_text = redis.call('HGETALL', KEYS[1])
    if #pairs_of_text == 0 then
        return nil
    end
    local run = {}
    for at = 1, #pairs_of_text, 2 do
        run[pairs_of_text[at]] = pairs_of_text[at + 1]
    end
    return run
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

-- decide() of dedup/record.py, in the only place where Redis lets reading and writing be one. A test holds the two together.
local function decide(run, attempt_id, now)
    if run == nil then
        return 'claim'
    end
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

-- The lease, and the key's end: what a TTL policy does elsewhere. What else there is to write goes with them, in one command.
local function hold(lease_seconds, retention_seconds, now, ...)
    local expire_at = now + retention_seconds * SECOND
    redis.call('HSET', KEYS[1],
        'updated_at', digits(now),
        'lease_seconds', digits(lease_seconds),
        'lease_expires', digits(now + lease_seconds * SECOND),
        'expire_at', digits(expire_at),
        ...)
    redis.call('PEXPIREAT', KEYS[1], digits(math.ceil(expire_at / 1000)))
end
