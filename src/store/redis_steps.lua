-- Units that record facts of a run under its claim and perhaps set it aside or end it, any number of
-- them, and a look for due work among them or alone: redis_state.lua and what follows it do the same
-- and more, and take four times as long, because each call makes all its functions and tables anew.
--
-- The whole batch is applied, or nothing is done and the answer is nothing: then the other script is
-- asked, which knows why. So this one refuses nothing and repeats no answer. Everything is judged
-- before the first write. No functions: making one costs as much as a command.
-- KEYS[1]: "{prefix}:". ARGV[1]: see quick_encode() of redis_quick.c.

local K = KEYS[1]
local call, pack, mp = redis.call, cmsgpack.pack, cmsgpack.unpack
local a = mp(ARGV[1])
local committer, session, first, last = a[1], a[4], a[5], a[6]
local look, steps = a[10], a[11]
local n = #steps

-- ---- what is there ------------------------------------------------------------------------------

local memory_key = K .. 'c:' .. committer
local keys = { memory_key }
for i = 1, n, 10 do keys[#keys + 1] = K .. 'r:' .. steps[i] end
local raws = call('MGET', unpack(keys))
if raws[1] and mp(raws[1])[1] >= first then return false end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + a[3]
local s = call('HGET', K .. 's', session)
s = s and mp(s)
if not s or s[6] or s[5] <= now or (n > 0 and s[2] ~= a[2]) then return false end

-- ---- steps --------------------------------------------------------------------------------------

-- Ten places each: run, epoch, inbox or false, seq, revision, count, entry, what is set, values, timers
local rows, rets, list, idle, values, new = {}, {}, {}, {}, false, {}
for i = 1, n, 10 do
    local id, inbox, set, puts = steps[i], steps[i + 2], steps[i + 7], steps[i + 8]
    local r = rows[id]
    if not r then
        local raw = raws[(i + 19) / 10]
        if not raw then return false end
        r = mp(raw)
        rows[id] = r
        list[#list + 1] = id
    end
    if r[6] ~= session or r[7] ~= steps[i + 1] or (inbox and r[9] ~= inbox) or
        r[8] + 1 ~= steps[i + 4] then
        return false
    end
    r[8] = r[8] + steps[i + 5]
    if set then -- status, is terminal, ended, due, is to be found, mask, attempt, reason, extra
        r[4], r[5], r[12], r[6], r[10] = set[1], set[2], set[3], 0, set[4]
        if set[6] % 8 >= 4 then r[14] = set[7] end
        if set[6] % 16 >= 8 then r[16] = set[8] end
        if set[6] % 32 >= 16 then r[17] = set[9] end
        idle[id] = set[5]
    end
    if puts then -- space, key, run, revision, bytes in turn
        values = values or {}
        for k = 1, #puts, 5 do
            local space, key = puts[k], puts[k + 1]
            local of = values[space] or {}
            if of[key] then return false end
            local v = call('HGET', K .. 'v:' .. space, key)
            of[key] = { v and mp(v)[1] + 1 or 1, puts[k + 2], puts[k + 3], puts[k + 4] }
            if not v then
                new[#new + 1] = space
                new[#new + 1] = key
            end
            values[space] = of
        end
    end
    rets[#rets + 1] = steps[i + 3]
    rets[#rets + 1] = r[9]
end

-- ---- the look -----------------------------------------------------------------------------------

-- { seq, count, running status, turn, keys of ready sets }
local turn, next_due, grants, news = 0, false, {}, {}
local DUE = 4503599627370496
if look then
    local left, queues = look[2], look[5]
    turn = look[4]
    local n_queues = #queues
    -- Which sets are there at all? Mostly none or one: halves that have none are left out.
    local ready = {}
    local from, upto, top = { 1 }, { n_queues }, 1
    while top > 0 do
        local f, u = from[top], upto[top]
        top = top - 1
        local some = call('EXISTS', unpack(queues, f, u))
        if some == u - f + 1 then
            for i = f, u do ready[#ready + 1] = i end
        elseif some > 0 then
            local middle = math.floor((f + u) / 2)
            from[top + 1], upto[top + 1] = middle + 1, u
            from[top + 2], upto[top + 2] = f, middle
            top = top + 2
        end
    end
    -- In turn, from the one whose turn it is.
    local order, start = {}, turn % n_queues
    for k = 1, #ready do
        if ready[k] > start then order[#order + 1] = ready[k] end
    end
    for k = 1, #ready do
        if ready[k] <= start then order[#order + 1] = ready[k] end
    end
    local pages, ids, members, at_queue = {}, {}, {}, {}
    for k = 1, #order do
        local page = call('ZRANGE', queues[order[k]], 0, math.min(left, 256))
        pages[k] = { page, 1 }
    end
    local found = true
    while found and left > 0 do
        found = false
        for k = 1, #order do
            local page = pages[k]
            local member = left > 0 and page[1][page[2]]
            if member and struct.unpack('>I8', member) - DUE <= now then
                page[2] = page[2] + 1
                left = left - 1
                found = true
                turn = order[k]
                ids[#ids + 1] = K .. 'r:' .. member:sub(9)
                members[#members + 1] = member
                at_queue[#at_queue + 1] = queues[order[k]]
            end
        end
    end
    for k = 1, #order do
        local page = pages[k]
        local member = page[1][page[2]]
        if member then
            local due = struct.unpack('>I8', member) - DUE
            if not next_due or due < next_due then next_due = due end
        end
    end
    look.members, look.queues = members, at_queue
    local found_rows = #ids > 0 and call('MGET', unpack(ids)) or {}
    for k = 1, #ids do
        local raw, id = found_rows[k], members[k]:sub(9)
        local r = raw and mp(raw)
        -- An entry that no row stands for, or two: damage, which the other script mends.
        if not r or rows[id] or r[6] ~= 0 or r[5] ~= 0 or not r[10] or r[10] > now then
            return false
        end
        r[6], r[7] = session, r[7] + 1
        if a[9]:byte(r[4] + 1) ~= 49 then r[4] = look[3] end -- not one that is sticky
        rows[id] = r
        list[#list + 1] = id
        grants[#grants + 1], grants[#grants + 2], grants[#grants + 3] = id, r[7], r[9]
        if r[9] > 0 then
            local entry = call('LINDEX', K .. 'i:' .. id, -1)
            if entry and #entry <= 4096 then
                news[#news + 1] = id
                news[#news + 1] = entry
            end
        end
    end
    if n == 0 and #ids == 0 then -- nothing to remember: an idle worker would make the server flush
        return pack({ now, turn, rets, next_due, pack(news), grants })
    end
end

-- ---- writing ------------------------------------------------------------------------------------

for i = 1, n, 10 do
    call('RPUSH', K .. 'j:' .. steps[i], steps[i + 6])
    local timers = steps[i + 9]
    if timers then
        for k = 1, #timers do
            local member = timers[k]
            call('ZADD', K .. 't', 0, member)
            call('ZADD', K .. 'k:' .. member:sub(9, 24), 0, member:sub(1, 8) .. member:sub(25))
        end
    end
end
local owned = K .. 'o:' .. session
local texts, gone, ended, is_ready = {}, {}, false, false
for i = 1, #list do
    local id = list[i]
    local r = rows[id]
    texts[2 * i - 1], texts[2 * i] = K .. 'r:' .. id, pack(r)
    if r[6] == 0 then
        gone[#gone + 1] = id
        if r[5] == 1 then
            -- nowhere
        elseif r[10] then
            call('ZADD', K .. 'q:' .. r[1], 0, struct.pack('>I8', r[10] + DUE) .. id)
            is_ready = is_ready or r[10] <= now
        elseif idle[id] then
            call('ZADD', K .. 'w:' .. r[4] .. ':' .. r[1], 0, id)
        end
    end
    if r[5] == 1 then ended = (ended or '') .. '\0\17r' .. id end
end
call('MSET', unpack(texts))
if #gone > 0 then call('ZREM', owned, unpack(gone)) end
if #grants > 0 then
    local adds = {}
    for k = 1, #grants, 3 do
        adds[#adds + 1] = 0
        adds[#adds + 1] = grants[k]
        call('ZREM', look.queues[(k + 2) / 3], look.members[(k + 2) / 3])
    end
    call('ZADD', owned, unpack(adds))
end
if values then
    for space, of in pairs(values) do
        for key, v in pairs(of) do
            call('HSET', K .. 'v:' .. space, key, pack(v))
        end
    end
    for k = 1, #new, 2 do call('ZADD', K .. 'x:' .. new[k], 0, new[k + 1]) end
end
local seen = look and { look[1], next_due, grants }
call('SET', memory_key, pack({ last, { first, last, false, rets, seen } }), 'PX', 604800000)
if not a[8] then return pack({ now, turn, rets, next_due, pack(news), grants }) end

-- ---- hints, as redis_commit.lua gives them --------------------------------------------------------

local told = ''
if is_ready then
    local entry = redis.pcall('XADD', K .. 'h', 'MAXLEN', '~', 1000, '*', 'c', committer)
    if type(entry) == 'string' then told = struct.pack('>I2', #entry + 1) .. 'w' .. entry end
end
if a[7] then
    redis.pcall('PUBLISH', K .. 'n', committer) -- more than that
else
    if told ~= '' then redis.pcall('PUBLISH', K .. 'n', committer .. told) end
    if ended then redis.pcall('PUBLISH', K .. 'e', committer .. ended) end
end
return pack({ now, turn, rets, next_due, pack(news), grants })
