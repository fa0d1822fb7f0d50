-- Units of a Redis store, as the server executes them. See redis.h for the keys and redis_encode.c for the argument.
--
-- Nothing is written before every unit of the call is judged. What the units change is kept in tables over what the
-- server has (rows, values, timers, lanes, facts), each change with what it takes to undo it; a unit that is refused
-- is undone, the others stay. Only then flush() writes, and nothing in it can be refused. So a unit is applied whole or
-- not at all, and a script that is stopped, or a server that has no more memory, has written nothing.
--
-- KEYS[1]: "{prefix}:". ARGV[1]: what to do, packed. Answers: what became of each unit, packed.

local K = KEYS[1]
local call, pack, mp = redis.call, cmsgpack.pack, cmsgpack.unpack

local HANDLER, LANE, STATUS, TERMINAL, SESSION, EPOCH, JOURNAL, INBOX, DUE, ENDED, ATTEMPT, REASON, EXTRA =
    1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17
local OK, CONFLICT, FENCED, INVALID, TOOBIG = 0, 1, 2, 3, 4
local IF_OPEN, HASTEN, RESTORE = 1, 2, 4

local committer, token, advance, sticky, quiet, turn, first_seq, prev_seq, claimers, ids, units =
    unpack(mp(ARGV[1]))
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + advance

local function set_of(list)
    local set = {}
    for i = 1, #list do set[list[i]] = true end
    return set
end

sticky, quiet = set_of(sticky), set_of(quiet)
for i = 1, #claimers do claimers[i].serves = set_of(claimers[i][3]) end

-- ---- changes, and how they are undone ---------------------------------------------------------

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

-- ---- runs ----------------------------------------------------------------------------------------

local rows, dirty = {}, {}             -- false: there is none
local had, at_key, at_member = {}, {}, {} -- what the server has of it

-- Order of bytes is order of time.
local function due_bytes(due) return struct.pack('>I8', due + 4503599627370496) end

-- The one sorted set a run is in besides the list of all: owned, ready, or idle and worth finding.
local function place(id, r)
    if r[SESSION] ~= 0 then return K .. 'o:' .. r[SESSION], id end
    if r[TERMINAL] == 1 then return nil end
    if r[DUE] then return K .. 'q:' .. r[HANDLER], due_bytes(r[DUE]) .. id end
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

-- ---- sessions ------------------------------------------------------------------------------------

local sessions = {} -- false: there is none

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

-- ---- lanes ---------------------------------------------------------------------------------------

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

-- ---- owners --------------------------------------------------------------------------------------

local grants -- of the unit under way

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
end

local function make_due(id, r, status)
    edit(id, r, SESSION, 0)
    edit(id, r, DUE, now)
    write_status(id, r, status)
end

local function wake(id, r, hastens, status, claimer)
    if r[SESSION] ~= 0 or r[TERMINAL] == 1 then return end
    if r[DUE] and (r[DUE] <= now or not hastens) then return end
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
    if next_run then wake(next_id, next_run, false, status, claimer) end
end

-- ---- values and timers ---------------------------------------------------------------------------

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

-- ---- facts ---------------------------------------------------------------------------------------

local facts = {}

local function facts_of(id)
    local f = facts[id]
    if not f then
        f = { journal = {}, inbox = {} }
        facts[id] = f
    end
    return f
end

-- ---- conditions ----------------------------------------------------------------------------------

local answers, by_seq = {}, {}
local memory -- of this committer: { last seq, { first, last, packed answers }… }
local remembered -- by seq, when it was needed

local function recall(seq)
    if not remembered then
        remembered = {}
        for i = 2, #memory do
            local list = mp(memory[i][3])
            for j = 1, #list do remembered[list[j][1]] = list[j] end
        end
    end
    return remembered[seq]
end

local conds = {
    [0] = function(c) -- claim
        local r = run(c[2])
        if not r or r[SESSION] ~= c[3] or r[EPOCH] ~= c[4] then return FENCED end
        if c[3] == 0 or (is_alive(c[3]) and is_own(c[3])) then return OK end
        return FENCED
    end,
    function(c) -- journal
        local r = run(c[2])
        if c[3] == 0 then return r and CONFLICT or OK end
        return r and r[JOURNAL] == c[3] and OK or CONFLICT
    end,
    function(c) -- inbox
        local r = run(c[2])
        return r and r[INBOX] == c[3] and OK or CONFLICT
    end,
    function(c) -- value
        local v = value(c[2], c[3])
        return (v and v[1] or 0) == c[4] and OK or CONFLICT
    end,
    function(c) return timer(c[2]) and OK or CONFLICT end,
    function(c) return is_alive(c[2]) and CONFLICT or OK end, -- session dead
    function(c) -- parked
        local r = run(c[2])
        return r and r[TERMINAL] == 0 and r[SESSION] == 0 and not r[DUE] and r[EPOCH] == c[4] and
            r[INBOX] == c[5] and is_alive(c[3]) and is_own(c[3]) and OK or CONFLICT
    end,
    function(c) -- writer
        local v = value(c[2], c[3])
        return v and v[2] == c[4] and v[3] == c[5] and OK or CONFLICT
    end,
    function(c) -- unit
        local a = by_seq[c[2]]
        if not a and c[2] >= first_seq then a = recall(c[2]) end
        return (not a or a[2] == OK) and OK or CONFLICT
    end,
    function() return INVALID end,
}

-- ---- operations on one run -----------------------------------------------------------------------

-- Facts without a row are damage; the row is made for what is there.
local function run_restore(id, row)
    local r = run(id)
    local journal, inbox
    if r then
        journal, inbox = r[JOURNAL], r[INBOX]
    else
        local last = call('LINDEX', K .. 'j:' .. id, -1)
        journal, inbox = 0, call('LLEN', K .. 'i:' .. id)
        if last then
            local first, count = struct.unpack('>I8I4', last)
            journal = first + count - 1
        end
    end
    if journal == 0 or journal ~= row[JOURNAL] or inbox ~= row[INBOX] or (r and r[SESSION] ~= 0) then
        return CONFLICT
    end
    if r then
        row[LANE] = r[LANE]
        if row[EPOCH] < r[EPOCH] then row[EPOCH] = r[EPOCH] end
    end
    put(rows, id, row)
    put(dirty, id, true)
end

local function run_put(o)
    local id, row, claimer = o[3], o[4], claimers[o[5]]
    if o[2] == RESTORE then return run_restore(id, row) end
    if run(id) then return CONFLICT end
    row[LANE], row[SESSION], row[EPOCH], row[JOURNAL], row[INBOX] = false, 0, 0, 0, 0
    put(rows, id, row)
    put(dirty, id, true)
    if row[TERMINAL] == 0 and row[DUE] and row[DUE] <= now and may_grant(row, claimer) then
        grant(id, row, claimer)
    end
end

-- { kind, id, mask, status, is terminal, ended, due, attempt, reason, extra }
local function run_set(o)
    local id, mask = o[2], o[3]
    local r = run(id)
    if not r then return CONFLICT end
    local function has(b) return bit.band(mask, b) ~= 0 end
    if has(1) then
        edit(id, r, STATUS, o[4])
        edit(id, r, TERMINAL, o[5])
        edit(id, r, ENDED, o[6])
    end
    if has(2) then
        edit(id, r, SESSION, 0)
        edit(id, r, DUE, o[7])
    end
    if has(32) and r[SESSION] == 0 then edit(id, r, DUE, o[7]) end
    if has(4) then edit(id, r, ATTEMPT, o[8]) end
    if has(8) then edit(id, r, REASON, o[9]) end
    if has(16) then edit(id, r, EXTRA, o[10]) end
end

local function op_facts(o)
    local id, number, count = o[2], o[3], o[4]
    local r = run(id)
    if not r or number ~= r[JOURNAL] + 1 then return CONFLICT end
    edit(id, r, JOURNAL, r[JOURNAL] + count)
    local j = facts_of(id).journal
    put(j, #j + 1, struct.pack('>I8I4', number, count) .. o[5])
end

local function op_inbox(o)
    local id = o[2]
    local r = run(id)
    if not r or r[TERMINAL] == 1 then return o[3] ~= IF_OPEN and CONFLICT or nil end
    edit(id, r, INBOX, r[INBOX] + 1)
    local i = facts_of(id).inbox
    put(i, #i + 1, o[4])
end

local function lane_enter(o)
    local id, name, claimer = o[2], o[3], claimers[o[6]]
    local r = run(id)
    if not r then return CONFLICT end
    if r[LANE] == name then return end
    if r[LANE] then return INVALID end
    local is_first = not lane_first(name)
    local l = lane_of(name)
    put(l.adds, l.n + 1, id)
    put(l, 'n', l.n + 1)
    edit(id, r, LANE, name)
    if not is_first then
        edit(id, r, DUE, false)
    else
        wake(id, r, o[4] == HASTEN, o[5], claimer)
    end
end

local function run_del(o)
    local id = o[2]
    local r = run(id)
    if not r or r[TERMINAL] == 0 then return CONFLICT end
    lane_leave(id, r, o[3], claimers[o[4]])
    local list = call('ZRANGE', K .. 'k:' .. id, 0, -1)
    for i = 1, #list do timer_put(list[i]:sub(1, 8) .. id .. list[i]:sub(9), false) end
    for member, is in pairs(timers) do
        if is and member:sub(9, 24) == id then timer_put(member, false) end
    end
    put(facts, id, { journal = {}, inbox = {}, is_wiped = true })
    put(rows, id, false)
    put(dirty, id, true)
end

-- ---- operations on many runs ---------------------------------------------------------------------

-- The runs of a set as it is on the server, and those of this call that may belong to it by now.
local function candidates(key)
    local list, seen = call('ZRANGE', key, 0, -1), {}
    for i = 1, #list do seen[list[i]] = true end
    for id in pairs(dirty) do
        if not seen[id] then list[#list + 1] = id end
    end
    return list
end

-- Ready runs of a handler in the order of their due times, and when each is due.
local function ready_runs(handler, page_size)
    local mine, page, at, from, m = {}, {}, 1, 0, 1
    for id in pairs(dirty) do
        local r = rows[id]
        if r and r[HANDLER] == handler and r[SESSION] == 0 and r[TERMINAL] == 0 and r[DUE] then
            mine[#mine + 1] = { r[DUE], id }
        end
    end
    table.sort(mine, function(a, b) return a[1] < b[1] end)
    local function theirs()
        while true do
            if at > #page then
                if from < 0 then return nil end
                page = call('ZRANGE', K .. 'q:' .. handler, from, from + page_size - 1)
                from = #page == page_size and from + page_size or -1
                at = 1
            end
            local member = page[at]
            if not member then return nil end
            local id = member:sub(9)
            if not dirty[id] then return struct.unpack('>I8', member) - 4503599627370496, id end
            at = at + 1
        end
    end
    return function(takes)
        local due, id = theirs()
        local own = mine[m]
        while own and not (rows[own[2]] and rows[own[2]][SESSION] == 0) do -- granted meanwhile
            m = m + 1
            own = mine[m]
        end
        if own and (not due or own[1] < due) then
            if takes then m = m + 1 end
            return own[1], own[2]
        end
        if takes then at = at + 1 end
        return due, id
    end
end

local next_due -- of the unit under way

local function claim_due(o)
    local left, claimer = o[2], claimers[o[3]]
    local handlers, next_of = claimer[3], {}
    if not is_alive(claimer[1]) then left = 0 end
    for i = 1, #handlers do next_of[i] = ready_runs(handlers[i], math.min(left, 63) + 1) end
    local idle = 0
    while left > 0 and idle < #handlers do
        local i = turn % #handlers + 1
        turn = turn + 1
        local due = next_of[i](false)
        if due and due <= now then
            local _, id = next_of[i](true)
            local r = run(id)
            if r then
                grant(id, r, claimer)
                left = left - 1
            end
            idle = 0
        else
            idle = idle + 1
        end
    end
    for i = 1, #handlers do
        local due = next_of[i](false)
        if due and (not next_due or due < next_due) then next_due = due end
    end
end

local function reap(o)
    local n = o[2]
    local list = candidates(K .. 'o:' .. n)
    for i = 1, #list do
        local r = run(list[i])
        if r and r[SESSION] == n then
            if r[TERMINAL] == 1 then
                edit(list[i], r, SESSION, 0)
                edit(list[i], r, DUE, false)
            else
                make_due(list[i], r, o[3])
            end
        end
    end
    if session(n) then put(sessions, n, false) end
end

local function requeue(o)
    local handlers = claimers[o[4]][3]
    for h = 1, #handlers do
        local list = candidates(K .. 'w:' .. o[2] .. ':' .. handlers[h])
        for i = 1, #list do
            local r = run(list[i])
            if r and r[SESSION] == 0 and r[TERMINAL] == 0 and not r[DUE] and r[STATUS] == o[2] and
                r[HANDLER] == handlers[h] then
                make_due(list[i], r, o[3])
            end
        end
    end
end

local ops = {
    [0] = run_put,
    run_set,
    function(o) -- run wake
        local r = run(o[2])
        if r then wake(o[2], r, o[3] == HASTEN, o[4], claimers[o[5]]) end
    end,
    op_facts,
    op_inbox,
    function(o) timer_put(o[2], true) end,
    function(o) timer_put(o[2], false) end,
    function(o) -- value put
        local v = value(o[2], o[3])
        value_put(o[2], o[3], { (v and v[1] or 0) + 1, o[5], o[6], o[4] })
    end,
    function(o)
        if value(o[2], o[3]) then value_put(o[2], o[3], false) end
    end,
    lane_enter,
    function(o) -- lane leave
        local r = run(o[2])
        if r then lane_leave(o[2], r, o[3], claimers[o[4]]) end
    end,
    claim_due,
    reap,
    run_del,
    requeue,
    function() return INVALID end,
    function() return TOOBIG end,
}

-- ---- units ---------------------------------------------------------------------------------------

local function judge(u)
    for i = 1, #u[2] do
        local c = u[2][i]
        local result = conds[c[1]](c)
        if result ~= OK then return result, i - 1 end
    end
    for i = 1, #u[3] do
        local o = u[3][i]
        local result = ops[o[1]](o)
        if result then return result, #u[2] end
    end
    return OK, 0
end

local function inbox_of(u)
    for i = 1, #u[2] do
        local c = u[2][i]
        if c[1] == 0 then
            local r = run(c[2])
            return r and r[INBOX] or 0
        end
    end
    return 0
end

-- { seq, result, condition, inbox, next due, grants }
local function decide(u)
    grants, next_due, n_undo = {}, false, 0
    local result, cond = judge(u)
    if result ~= OK then
        roll_back()
        return { u[1], result, cond, 0, false, {} }, false
    end
    return { u[1], OK, 0, inbox_of(u), next_due, grants }, n_undo > 0
end

-- ---- writing -------------------------------------------------------------------------------------

local function each(command, key, list) -- as many at a time as the stack of Lua holds
    for i = 1, #list, 1000 do
        if key then
            call(command, key, unpack(list, i, math.min(i + 999, #list)))
        else
            call(command, unpack(list, i, math.min(i + 999, #list)))
        end
    end
end

local function under(t, key)
    local list = t[key]
    if not list then
        list = {}
        t[key] = list
    end
    return list
end

local function add(t, key, member)
    local list = under(t, key)
    list[#list + 1] = 0
    list[#list + 1] = member
end

local function flush_runs(adds, rems)
    local texts, dels, is_ready = {}, {}, false
    for id in pairs(dirty) do
        local r = rows[id]
        local key, member
        if r then key, member = place(id, r) end
        if key ~= at_key[id] or member ~= at_member[id] then
            if at_key[id] then table.insert(under(rems, at_key[id]), at_member[id]) end
            if key then add(adds, key, member) end
        end
        if r then
            texts[#texts + 1] = K .. 'r:' .. id
            texts[#texts + 1] = pack(r)
            if not had[id] then add(adds, K .. 'ids', id) end
            is_ready = is_ready or (r[SESSION] == 0 and r[TERMINAL] == 0 and r[DUE] and r[DUE] <= now)
        elseif had[id] then
            dels[#dels + 1] = K .. 'r:' .. id
            table.insert(under(rems, K .. 'ids'), id)
        end
    end
    each('MSET', nil, texts)
    each('DEL', nil, dels)
    return is_ready
end

local function flush_facts()
    for id, f in pairs(facts) do
        if f.is_wiped then call('DEL', K .. 'j:' .. id, K .. 'i:' .. id) end
        each('RPUSH', K .. 'j:' .. id, f.journal)
        each('RPUSH', K .. 'i:' .. id, f.inbox)
    end
end

local function flush_timers(adds, rems)
    for member in pairs(dirty_timers) do
        local own, short = K .. 'k:' .. member:sub(9, 24), member:sub(1, 8) .. member:sub(25)
        if timers[member] then
            add(adds, K .. 't', member)
            add(adds, own, short)
        else
            table.insert(under(rems, K .. 't'), member)
            table.insert(under(rems, own), short)
        end
    end
end

local function flush_values(adds, rems)
    for space, s in pairs(values) do
        local puts, dels = {}, {}
        for key in pairs(s.dirty) do
            local v = s.is[key]
            if v then
                puts[#puts + 1] = key
                puts[#puts + 1] = pack(v)
                if not s.had[key] then add(adds, K .. 'x:' .. space, key) end
            else
                dels[#dels + 1] = key
                table.insert(under(rems, K .. 'x:' .. space), key)
            end
        end
        each('HSET', K .. 'v:' .. space, puts)
        each('HDEL', K .. 'v:' .. space, dels)
    end
end

local function flush_lanes()
    for name, l in pairs(lanes) do
        local key, gone, adds = K .. 'l:' .. name, {}, {}
        for id in pairs(l.gone) do gone[#gone + 1] = id end
        each('ZREM', key, gone)
        local last = l.n > 0 and call('ZRANGE', key, -1, -1, 'WITHSCORES') or {}
        local score = tonumber(last[2] or 0)
        for i = 1, l.n do
            if l.adds[i] then
                score = score + 1
                adds[#adds + 1] = score
                adds[#adds + 1] = l.adds[i]
            end
        end
        each('ZADD', key, adds)
    end
end

local function flush()
    local adds, rems = {}, {}
    local is_ready = flush_runs(adds, rems)
    flush_facts()
    flush_timers(adds, rems)
    flush_values(adds, rems)
    flush_lanes()
    for n, s in pairs(sessions) do
        if s == false and call('HDEL', K .. 's', n) == 1 then call('HDEL', K .. 'S', n) end
    end
    for key, list in pairs(rems) do each('ZREM', key, list) end
    for key, list in pairs(adds) do each('ZADD', key, list) end
    -- Hints. They may fail: nobody is promised one.
    redis.pcall('PUBLISH', K .. 'n', committer)
    if is_ready then redis.pcall('XADD', K .. 'h', 'MAXLEN', '~', 1000, '*', 'c', committer) end
end

-- ---- the call ------------------------------------------------------------------------------------

local memory_key = K .. 'c:' .. committer
local raw_memory = call('GET', memory_key)
memory = raw_memory and mp(raw_memory) or { 0 }
local last_seq, is_changed, fresh = memory[1], false, {}

-- A part of a commit whose earlier part is not there: what stands before it must come first.
if prev_seq > last_seq then return redis.error_reply('STETORDER an earlier part of this commit is missing') end

do
    local keys, wanted = {}, {}
    for i = 1, #ids do
        if rows[ids[i]] == nil then
            rows[ids[i]] = false
            keys[#keys + 1], wanted[#wanted + 1] = K .. 'r:' .. ids[i], ids[i]
        end
    end
    for from = 1, #keys, 1000 do
        local upto = math.min(from + 999, #keys)
        local raws = call('MGET', unpack(keys, from, upto))
        for i = from, upto do keep(wanted[i], raws[i - from + 1]) end
    end
end

for i = 1, #units do
    local u, a, is_new = units[i], nil, false
    if u[1] <= last_seq then
        a = recall(u[1]) or { u[1], INVALID, #u[2], 0, false, {} }
    else
        a, is_new = decide(u)
        is_changed = is_changed or is_new
        fresh[#fresh + 1] = a
    end
    answers[i], by_seq[u[1]] = a, a
end

if is_changed then flush() end
if #fresh > 0 then
    local kept = { fresh[#fresh][1] }
    for i = 2, #memory do
        if memory[i][2] >= first_seq then kept[#kept + 1] = memory[i] end
    end
    kept[#kept + 1] = { fresh[1][1], fresh[#fresh][1], pack(fresh) }
    call('SET', memory_key, pack(kept), 'PX', 604800000)
end
return pack({ now, last_seq, turn, answers })
