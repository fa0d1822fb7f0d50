-- Sessions of a Redis store: leases by the server's clock.
--
-- A session is { id, hash of its token, started, seen, lease until, is closed } under its number in
-- "s", what its worker tells of itself in "S". KEYS[1]: "{prefix}:". ARGV[1]: what to do, ARGV[2]:
-- milliseconds the clock of a test is ahead.

local K = KEYS[1]
local call, pack, mp = redis.call, cmsgpack.pack, cmsgpack.unpack
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]
local jobs = {}

local function get(n)
    local raw = call('HGET', K .. 's', n)
    return raw and mp(raw)
end

local function put(n, s) call('HSET', K .. 's', n, pack(s)) end

function jobs.open(id, token, lease, info)
    local n = call('HINCRBY', K .. 'm', 'session', 1)
    put(n, { id, token, now, now, now + lease, false })
    call('HSET', K .. 'S', n, info)
    return { n, now }
end

function jobs.renew(n, token, lease)
    local s = get(n)
    if not s or s[2] ~= token or s[6] or s[5] <= now then return { 0, now } end
    s[4], s[5] = now, now + lease
    put(n, s)
    return { 1, now }
end

-- 1: closed; 0: there is none; -1: it is another's.
function jobs.close(n, token, committer)
    local s = get(n)
    if not s then return { 0, now } end
    if s[2] ~= token then return { -1, now } end
    s[6] = true
    put(n, s)
    redis.pcall('PUBLISH', K .. 'n', committer) -- its claims wait for somebody
    return { 1, now }
end

-- Number, session, what it tells, in turn.
function jobs.list()
    local all, found = call('HGETALL', K .. 's'), {}
    for i = 1, #all, 2 do
        found[#found + 1] = all[i]
        found[#found + 1] = all[i + 1]
        found[#found + 1] = call('HGET', K .. 'S', all[i]) or ''
    end
    return { now, found }
end

-- Those that were dead for long and hold nothing.
function jobs.forget(age)
    local all = call('HGETALL', K .. 's')
    for i = 1, #all, 2 do
        local s = mp(all[i + 1])
        local last = math.max(s[4], s[6] and 0 or s[5])
        if last < now - age and call('EXISTS', K .. 'o:' .. all[i]) == 0 then
            call('HDEL', K .. 's', all[i])
            call('HDEL', K .. 'S', all[i])
        end
    end
    return { call('HLEN', K .. 's'), now }
end

return jobs[ARGV[1]](unpack(ARGV, 3))
