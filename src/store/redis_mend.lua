-- Indexes of a Redis store against what they are indexes of: says what is missing, and adds it if it
-- is to. Removes nothing, so it can be done beside workers. A record and its entries are looked at in
-- one call, between which nobody writes: what is missing then is missing.
--
-- KEYS[1]: "{prefix}:". ARGV[1]: what; ARGV[2]: "1" to add; ARGV[3]: quiet statuses, a digit each;
-- ARGV[4]: names in a row, each behind its length (4 bytes); of values their space, and ARGV[5] the
-- cursor of a scan ("v") or names ("x").
-- Answers name and what is missing in turn; of a scan the next cursor, then key and run in turn.

local K = KEYS[1]
local call = redis.call
local adds, quiet, found = ARGV[2] == '1', ARGV[3], {}

local function lacks(key, member)
    if call('ZSCORE', key, member) then return false end
    if adds then call('ZADD', key, 0, member) end
    return true
end

local function tell(name, what) found[#found + 1], found[#found + 2] = name, what end

-- false: it cannot be read, which is not for us to say.
local function unpacked(raw)
    local is_ok, t = pcall(cmsgpack.unpack, raw)
    return is_ok and type(t) == 'table' and t
end

-- The one set that redis_state.lua (place) has it in, behind what to call it.
local function place(id, r)
    if r[6] ~= 0 then return 'o', K .. 'o:' .. r[6], id end
    if r[5] ~= 0 then return nil end
    if r[10] then
        return 'q', K .. 'q:' .. r[1], struct.pack('>I8', r[10] + 4503599627370496) .. id
    end
    if quiet:sub(r[4] + 1, r[4] + 1) == '1' then return nil end
    return 'w', K .. 'w:' .. r[4] .. ':' .. r[1], id
end

local function each_name(names, job)
    local at = 1
    while at <= #names do
        local len = struct.unpack('>I4', names, at)
        job(names:sub(at + 4, at + 3 + len))
        at = at + 4 + len
    end
end

local jobs = {}

-- Rows: the list of all, and their place.
function jobs.r(names)
    each_name(names, function(id)
        local raw = call('GET', K .. 'r:' .. id)
        local r = raw and unpacked(raw)
        if not r then return end
        local what = lacks(K .. 'ids', id) and 'a' or ''
        local letter, key, member = place(id, r)
        if letter and lacks(key, member) then what = what .. letter end
        if what ~= '' then tell(id, what) end
    end)
end

-- Timers of a run.
function jobs.k(names)
    each_name(names, function(id)
        local list, is_missing = call('ZRANGE', K .. 'k:' .. id, 0, -1), false
        for i = 1, #list do
            is_missing = lacks(K .. 't', list[i]:sub(1, 8) .. id .. list[i]:sub(9)) or is_missing
        end
        if is_missing then tell(id, 't') end
    end)
end

-- Values of a space, some of them.
function jobs.v(space, cursor)
    local page = call('HSCAN', K .. 'v:' .. space, cursor, 'COUNT', 100)
    found[1] = page[1]
    for i = 1, #page[2], 2 do
        if lacks(K .. 'x:' .. space, page[2][i]) then
            local v = unpacked(page[2][i + 1])
            tell(page[2][i], v and v[2] or '')
        end
    end
end

-- Of a space those that were found missing.
function jobs.x(space, names)
    each_name(names, function(key)
        if call('HEXISTS', K .. 'v:' .. space, key) == 1 then lacks(K .. 'x:' .. space, key) end
    end)
end

jobs[ARGV[1]](ARGV[4], ARGV[5])
return found
