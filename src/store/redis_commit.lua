-- Units: judged one after the other, written together; see redis_state.lua.

-- ---- units --------------------------------------------------------------------------------------

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
local NONE = {}
local function decide(u)
    grants, next_due, n_undo = {}, false, 0
    local result, cond = judge(u)
    if result ~= OK then
        roll_back()
        return { u[1], result, cond, 0, false, NONE }, false
    end
    return { u[1], OK, 0, inbox_of(u), next_due, grants }, n_undo > 0
end

-- ---- writing ------------------------------------------------------------------------------------

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
    local texts, dels, ended, ready = {}, {}, {}, {}
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
            if r[SESSION] == 0 and r[TERMINAL] == 0 and r[DUE] and r[DUE] <= now then
                ready[#ready + 1] = id
            end
            if r[TERMINAL] == 1 then ended[#ended + 1] = id end
        elseif had[id] then
            dels[#dels + 1] = K .. 'r:' .. id
            table.insert(under(rems, K .. 'ids'), id)
        end
    end
    each('MSET', nil, texts)
    each('DEL', nil, dels)
    return ready, ended
end

-- Hints, see redis_hint.c: 'w' and the entry of the stream, or 'k' and a run that was woken by
-- something it got, if it is the only one, and the entry; 'r' and a run that ended, or that
-- somebody else executes and that got something. They may fail: nobody is promised one.
local function hint(ready, ended)
    local told, id = { committer }, ready[1]
    if id then
        local by_name = not ready[2] and facts[id] and #facts[id].inbox > 0
        local entry = by_name and
            redis.pcall('XADD', K .. 'h', 'MAXLEN', '~', 1000, '*', 'c', committer, 'r', id) or
            redis.pcall('XADD', K .. 'h', 'MAXLEN', '~', 1000, '*', 'c', committer)
        if type(entry) == 'string' then
            entry = by_name and 'k' .. id .. entry or 'w' .. entry
            told[2] = struct.pack('>I2', #entry) .. entry
        end
    end
    for id, f in pairs(facts) do
        local r = #f.inbox > 0 and rows[id]
        if r and r[SESSION] ~= 0 and session(r[SESSION]) and not is_own(r[SESSION]) then
            told[#told + 1] = '\0\17r' .. id
        end
    end
    if publishes then told, ended = { committer }, {} end -- more than that
    if publishes or #told > 1 then
        redis.pcall('PUBLISH', K .. 'n', table.concat(told))
    end
    if #ended > 0 then
        redis.pcall('PUBLISH', K .. 'e', committer .. '\0\17r' .. table.concat(ended, '\0\17r'))
    end
end

local function flush_facts()
    for id, f in pairs(facts) do
        if f.is_wiped then call('DEL', K .. 'j:' .. id, K .. 'i:' .. id, K .. 'b:' .. id) end
        if f.is_anew then call('DEL', K .. 'j:' .. id) end
        if f.cut then
            local gone = tonumber(call('GET', K .. 'b:' .. id) or 0)
            if f.cut > gone then
                call('LTRIM', K .. 'i:' .. id, f.cut - gone, -1)
                call('SET', K .. 'b:' .. id, string.format('%.0f', f.cut))
            end
        end
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
    local ready, ended = flush_runs(adds, rems)
    for member, handler in pairs(strays) do
        table.insert(under(rems, K .. 'q:' .. handler), member)
    end
    flush_facts()
    flush_timers(adds, rems)
    flush_values(adds, rems)
    flush_lanes()
    for n, s in pairs(sessions) do
        if s == false and call('HDEL', K .. 's', n) == 1 then call('HDEL', K .. 'S', n) end
    end
    for n in pairs(buried) do
        if sessions[n] then call('HSET', K .. 's', n, pack(sessions[n])) end
    end
    for key, list in pairs(rems) do each('ZREM', key, list) end
    for key, list in pairs(adds) do each('ZADD', key, list) end
    if hints then hint(ready, ended) end
end

-- A look for work that found none is not remembered: an idle worker would make the server flush.
local CLAIM_DUE = 11
local function is_idle_look(u, a)
    for i = 1, #u[3] do
        if u[3][i][1] ~= CLAIM_DUE then return false end
    end
    return #u[3] > 0 and a[2] == OK and #a[6] == 0
end

-- ---- the call -----------------------------------------------------------------------------------

local memory_key = K .. 'c:' .. committer
local raw_memory = call('GET', memory_key)
memory = raw_memory and mp(raw_memory) or { 0 }
local last_seq, is_changed, must_keep, fresh = memory[1], false, false, {}

-- A part of a commit whose earlier part is not there: what stands before it must come first.
if prev_seq > last_seq then
    return redis.error_reply('STETORDER an earlier part of this commit is missing')
end

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
        must_keep = must_keep or is_new or not is_idle_look(u, a)
        fresh[#fresh + 1] = a
    end
    answers[i], by_seq[u[1]] = a, a
end

if is_changed then flush() end
local packed = pack(fresh)
if must_keep then
    local kept = { fresh[#fresh][1] }
    for i = 2, #memory do
        if memory[i][2] >= first_seq then kept[#kept + 1] = memory[i] end
    end
    kept[#kept + 1] = { fresh[1][1], fresh[#fresh][1], packed }
    call('SET', memory_key, pack(kept), 'PX', 604800000)
end
if #fresh < #answers then packed = pack(answers) end
return pack({ now, last_seq, turn, packed, pack(news) })
