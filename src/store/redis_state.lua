-- Units of a Redis store, as the server executes them: this file, redis_ops.lua and
-- redis_commit.lua are one script. See redis.h for the keys and redis_encode.c for the argument.
--
-- Nothing is written before every unit of the call is judged. What the units change is kept in
-- tables over what the server has (rows, values, timers, lanes, facts), each change with what it
-- takes to undo it; a unit that is refused is undone, the others stay. Only then flush() writes,
-- and nothing in it can be refused. So a unit is applied whole or not at all, and a script that is
-- stopped, or a server that has no more memory, has written nothing.
--
-- This file: what the server has, and the tables over it.
-- KEYS[1]: "{prefix}:". ARGV[1]: what to do, packed. Answers: what became of each unit, packed.

local K = KEYS[1]
local call, pack, mp = redis.call, cmsgpack.pack, cmsgpack.unpack

-- Columns of a row.
local HANDLER, LANE, STATUS, TERMINAL, SESSION, EPOCH = 1, 3, 4, 5, 6, 7
local JOURNAL, INBOX, DUE, ENDED, ATTEMPT, REASON, EXTRA = 8, 9, 10, 12, 14, 16, 17
local OK, CONFLICT, FENCED, INVALID, TOOBIG = 0, 1, 2, 3, 4
local IF_OPEN, HASTEN, RESTORE, ONLY_DUE = 1, 2, 4, 32

local committer, token, advance, sticky, quiet, turn, first_seq, prev_seq, publishes, hints,
    claimers, ids, units = unpack(mp(ARGV[1]))
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + advance

local function set_of(list)
    local set = {}
    for i = 1, #list do set[list[i]] = true end
    return set
end

sticky, quiet = set_of(sticky), set_of(quiet)
for i = 1, #claimers do claimers[i].serves = set_of(claimers[i][3]) end

-- ---- changes, and how they are undone -----------------------------------------------------------

local undo, n_undo = {}, 0

local function put(t, k, v)
    undo[n_undo + 1], undo[n_undo + 2], undo[n_undo + 3] = t, k, t[k]
    n_undo = n_undo + 3
    t[k] = v
end

local function roll_back()
    for i = n_undo - 2, 1, -3 do undo[i][undo[i + 1]] = undo[i + 2] end
    n_undo = 0
end

-- ---- runs ---------------------------------------------------------------------------------------

local rows, dirty = {}, {}             -- false: there is none
local had, at_key, at_member = {}, {}, {} -- what the server has of it

-- Order of bytes is order of time.
local function due_bytes(due) return struct.pack('>I8', due + 4503599627370496) end

-- Names of keys, put together once a call.
local owned_key = setmetatable({}, { __index = function(t, session)
    local key = K .. 'o:' .. session
    rawset(t, session, key)
    return key
end })
local ready_key = setmetatable({}, { __index = function(t, handler)
    local key = K .. 'q:' .. handler
    rawset(t, handler, key)
    return key
end })

-- The one sorted set a run is in besides the list of all: owned, ready, or idle and worth finding.
local function place(id, r)
    if r[SESSION] ~= 0 then return owned_key[r[SESSION]], id end
    if r[TERMINAL] == 1 then return nil end
    if r[DUE] then return ready_key[r[HANDLER]], due_bytes(r[DUE]) .. id end
    if quiet[r[STATUS]] then return nil end
    return K .. 'w:' .. r[STATUS] .. ':' .. r[HANDLER], id
end

local function keep(id, raw)
    local r = raw and mp(raw)
    rows[id], had[id] = r, r and true or false
    if r then at_key[id], at_member[id] = place(id, r) end
    return r
end

local function run(id)
    local r = rows[id]
    if r == nil then r = keep(id, call('GET', K .. 'r:' .. id)) end
    return r
end

local function edit(id, r, column, v)
    if r[column] ~= v then
        put(r, column, v)
        if not dirty[id] then put(dirty, id, true) end
    end
end

-- ---- sessions -----------------------------------------------------------------------------------

local sessions = {} -- false: there is none
local buried = {}

local function session(n)
    local s = sessions[n]
    if s == nil then
        local raw = call('HGET', K .. 's', n)
        s = raw and mp(raw)
        sessions[n] = s
    end
    return s
end

local function is_alive(n)
    local s = session(n)
    return s and not s[6] and s[5] > now
end

local function is_own(n) return session(n)[2] == token end

-- ---- lanes --------------------------------------------------------------------------------------

local lanes = {}

local function lane_of(name)
    local l = lanes[name]
    if not l then
        l = { gone = {}, adds = {}, n = 0 }
        lanes[name] = l
    end
    return l
end

local function lane_first(name)
    local l, from = lane_of(name), 0
    repeat
        local page = call('ZRANGE', K .. 'l:' .. name, from, from + 7)
        for i = 1, #page do
            if not l.gone[page[i]] then return page[i] end
        end
        from = from + 8
    until #page < 8
    for i = 1, l.n do
        if l.adds[i] then return l.adds[i] end
    end
end

local function lane_remove(name, id)
    local l = lane_of(name)
    for i = l.n, 1, -1 do
        if l.adds[i] == id then return put(l.adds, i, false) end
    end
    put(l.gone, id, true)
end

-- ---- facts --------------------------------------------------------------------------------------

local facts = {}

local function facts_of(id)
    local f = facts[id]
    if not f then
        f = { journal = {}, inbox = {} }
        facts[id] = f
    end
    return f
end

-- ---- owners -------------------------------------------------------------------------------------

local grants -- of the unit under way
local news = {} -- what lies last in the inboxes of runs that were granted: ID and entry in turn
local NEWS_BYTES = 4096

local function write_status(id, r, status)
    if not sticky[r[STATUS]] then edit(id, r, STATUS, status) end
end

local function may_grant(r, claimer)
    return claimer and claimer.serves[r[HANDLER]] and is_alive(claimer[1])
end

local function grant(id, r, claimer)
    edit(id, r, SESSION, claimer[1])
    edit(id, r, EPOCH, r[EPOCH] + 1)
    write_status(id, r, claimer[2])
    local n = #grants
    grants[n + 1], grants[n + 2], grants[n + 3] = id, r[EPOCH], r[INBOX]
    local added = facts[id] and facts[id].inbox
    local entry = r[INBOX] > 0 and
        (added and added[#added] or call('LINDEX', K .. 'i:' .. id, -1))
    if entry and #entry <= NEWS_BYTES then
        put(news, #news + 1, id)
        put(news, #news + 1, entry)
    end
end

local function make_due(id, r, status)
    edit(id, r, SESSION, 0)
    edit(id, r, DUE, now)
    write_status(id, r, status)
end

local function wake(id, r, flags, status, claimer)
    if r[SESSION] ~= 0 or r[TERMINAL] == 1 then return end
    if flags == ONLY_DUE then
        if r[DUE] and r[DUE] <= now and may_grant(r, claimer) then grant(id, r, claimer) end
        return
    end
    if r[DUE] and (r[DUE] <= now or flags ~= HASTEN) then return end
    if r[LANE] and lane_first(r[LANE]) ~= id then return end
    if may_grant(r, claimer) then return grant(id, r, claimer) end
    make_due(id, r, status)
end

local function lane_leave(id, r, status, claimer)
    local name = r[LANE]
    if not name then return end
    local was_first = lane_first(name) == id
    lane_remove(name, id)
    edit(id, r, LANE, false)
    if not was_first then return end -- one that was first and sleeps goes on sleeping
    local next_id = lane_first(name)
    local next_run = next_id and run(next_id)
    if next_run then wake(next_id, next_run, 0, status, claimer) end
end

-- ---- values and timers --------------------------------------------------------------------------

local values, timers, dirty_timers = {}, {}, {}

local function value(space, key)
    local s = values[space]
    if not s then
        s = { is = {}, had = {}, dirty = {} }
        values[space] = s
    end
    local v = s.is[key]
    if v == nil then
        local raw = call('HGET', K .. 'v:' .. space, key)
        v = raw and mp(raw)
        s.is[key], s.had[key] = v, v
    end
    return v, s
end

local function value_put(space, key, v)
    local _, s = value(space, key)
    put(s.is, key, v)
    put(s.dirty, key, true)
end

local function timer(member)
    local is = timers[member]
    if is == nil then
        is = call('ZSCORE', K .. 't', member) and true or false
        timers[member] = is
    end
    return is
end

local function timer_put(member, is)
    if timer(member) ~= is then
        put(timers, member, is)
        put(dirty_timers, member, true)
    end
end

