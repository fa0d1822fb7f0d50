-- Indexes of a Redis store, made again from what they are indexes of; adds what is missing, removes
-- nothing, so it can be done beside workers.
--
-- KEYS[1]: "{prefix}:". ARGV[1]: what; ARGV[2]: names in a row, each behind its length (4 bytes).
-- Answers how many entries were missing.

local K = KEYS[1]
local call, mp = redis.call, cmsgpack.unpack
local jobs, missing = {}, 0

local function add(key, member) missing = missing + call('ZADD', key, 0, member) end

-- Rows: the list of all, and the one set that redis_state.lua (place) would have them in.
function jobs.r(id)
    local raw = call('GET', K .. 'r:' .. id)
    local r = raw and mp(raw)
    if not r then return end
    add(K .. 'ids', id)
    if r[6] ~= 0 then
        add(K .. 'o:' .. r[6], id)
    elseif r[5] == 0 and r[10] then
        add(K .. 'q:' .. r[1], struct.pack('>I8', r[10] + 4503599627370496) .. id)
    elseif r[5] == 0 then
        add(K .. 'w:' .. r[4] .. ':' .. r[1], id)
    end
end

-- Values of a space.
function jobs.v(space)
    local keys = call('HKEYS', K .. 'v:' .. space)
    for i = 1, #keys do add(K .. 'x:' .. space, keys[i]) end
end

-- Timers of a run.
function jobs.k(id)
    local list = call('ZRANGE', K .. 'k:' .. id, 0, -1)
    for i = 1, #list do add(K .. 't', list[i]:sub(1, 8) .. id .. list[i]:sub(9)) end
end

local at = 1
while at <= #ARGV[2] do
    local len = struct.unpack('>I4', ARGV[2], at)
    jobs[ARGV[1]](ARGV[2]:sub(at + 4, at + 3 + len))
    at = at + 4 + len
end
return missing
