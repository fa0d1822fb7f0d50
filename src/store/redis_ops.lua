-- Conditions and operations; see redis_state.lua.

-- ---- conditions ---------------------------------------------------------------------------------

local answers, by_seq = {}, {}
-- Of this committer: { last seq, { first, last, packed answers }… }, or of a quick script, in each,
-- { first, last, false, seq and inbox in turn, false or { seq of a look, next due, grants } }.
local memory
local remembered -- by seq, when it was needed

local function recall(seq)
    if not remembered then
        remembered = {}
        for i = 2, #memory do
            local m = memory[i]
            local list, quick, look = m[3] and mp(m[3]) or {}, m[4] or {}, m[5]
            for j = 1, #list do remembered[list[j][1]] = list[j] end
            for j = 1, #quick, 2 do
                remembered[quick[j]] = { quick[j], OK, 0, quick[j + 1], false, {} }
            end
            if look then remembered[look[1]] = { look[1], OK, 0, 0, look[2], look[3] } end
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

-- ---- operations on one run ----------------------------------------------------------------------

-- Facts without a row are damage; the row is made for what is there.
local function run_restore(id, row)
    local r = run(id)
    local journal, inbox
    if r then
        journal, inbox = r[JOURNAL], r[INBOX]
    else
        local last = call('LINDEX', K .. 'j:' .. id, -1)
        journal, inbox = 0, call('LLEN', K .. 'i:' .. id) + (call('GET', K .. 'b:' .. id) or 0)
        if last then
            local first, count = struct.unpack('>I8I4', last)
            journal = first + count - 1
        end
    end
    if journal == 0 or journal ~= row[JOURNAL] or inbox ~= row[INBOX] or
        (r and r[SESSION] ~= 0) then
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

local band = bit.band

-- { kind, id, mask, status, is terminal, ended, due, attempt, reason, extra }
local function run_set(o)
    local id, mask = o[2], o[3]
    local r = run(id)
    if not r then return CONFLICT end
    if band(mask, 1) ~= 0 then
        edit(id, r, STATUS, o[4])
        edit(id, r, TERMINAL, o[5])
        edit(id, r, ENDED, o[6])
    end
    if band(mask, 2) ~= 0 then
        edit(id, r, SESSION, 0)
        edit(id, r, DUE, o[7])
    end
    if band(mask, 32) ~= 0 and r[SESSION] == 0 then edit(id, r, DUE, o[7]) end
    if band(mask, 4) ~= 0 then edit(id, r, ATTEMPT, o[8]) end
    if band(mask, 8) ~= 0 then edit(id, r, REASON, o[9]) end
    if band(mask, 16) ~= 0 then edit(id, r, EXTRA, o[10]) end
end

-- All facts go, and the inbox up to `cut`; what this call puts into the inbox behind that stays.
local function begin_anew(id, r, cut)
    local old = facts_of(id)
    local f = { journal = {}, inbox = {}, is_wiped = old.is_wiped, is_anew = true,
                cut = math.max(cut, old.cut or 0) }
    for i = 1, #old.inbox do
        if r[INBOX] - #old.inbox + i > cut then f.inbox[#f.inbox + 1] = old.inbox[i] end
    end
    put(facts, id, f)
    if r[INBOX] < cut then edit(id, r, INBOX, cut) end
end

local function op_facts(o)
    local id, number, count, cut = o[2], o[3], o[4], o[5]
    local r = run(id)
    if not r or number <= r[JOURNAL] or (number ~= r[JOURNAL] + 1 and not cut) then
        return CONFLICT
    end
    if cut then begin_anew(id, r, cut) end
    edit(id, r, JOURNAL, number - 1 + count)
    local j = facts_of(id).journal
    put(j, #j + 1, o[6]) -- with number and count in front
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
        wake(id, r, o[4], o[5], claimer)
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

-- ---- operations on many runs --------------------------------------------------------------------

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
local strays = {} -- entries of ready sets to be removed: the handler of each

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
            if r and r[SESSION] == 0 and r[TERMINAL] == 0 and r[DUE] and r[DUE] <= now then
                grant(id, r, claimer)
                left = left - 1
            else -- an entry that no row stands for is damage; it would be found first for ever
                put(strays, due_bytes(due) .. id, handlers[i])
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

local function bury(o)
    local s = session(o[2])
    if s and not s[6] then
        put(sessions, o[2], { s[1], s[2], s[3], s[4], s[5], true })
        put(buried, o[2], true)
    end
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
        if r then wake(o[2], r, o[3], o[4], claimers[o[5]]) end
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
    bury,
    function() return INVALID end,
    function() return TOOBIG end,
}

