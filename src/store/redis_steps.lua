-- Units that record facts of a run under its claim and perhaps set it aside or end it, any number
-- of them, and a look for due work among them or alone: redis_state.lua and what follows it do the
-- same and more, and take several times as long, because each call makes all its functions and
-- tables anew.
--
-- The whole batch is applied, or nothing is done and the answer is nothing: then the other script
-- is asked, which knows why. So this one refuses nothing and repeats no answer. Everything is
-- judged before the first write. No functions, few tables: making one, and removing it, costs as
-- much as a command; so does a number that becomes an argument, and a byte of a string is hashed
-- whenever a string is made of it. Rows and arguments are taken apart by `take`, which gives where
-- it stopped and values. KEYS[1]: "{prefix}:". ARGV[1]: see steps_encode() of redis_quick.c.

local K = KEYS[1]
local call, pack, take = redis.call, cmsgpack.pack, cmsgpack.unpack_limit
local at, committer, token, advance, session, first, last, publishes, hints, sticky, look, ids =
    take(ARGV[1], 11, 0)
local n = #ids / 16

-- ---- what is there ------------------------------------------------------------------------------

local memory_key = K .. 'c:' .. committer
local keys = { memory_key }
for i = 1, n do keys[i + 1] = K .. 'r:' .. ids:sub(16 * i - 15, 16 * i) end
local raws = call('MGET', unpack(keys))
local memory = raws[1]
if memory then -- an array of more than 15 has a longer head
    local _, seq = take(memory, 1, memory:byte() == 220 and 3 or 1)
    if seq >= first then return false end
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + advance
local raw = call('HGET', K .. 's', session)
if not raw then return false end
local _, _, hash, _, _, lease, is_closed = take(raw, 6, 1)
if is_closed or lease <= now or (n > 0 and hash ~= token) then return false end

-- ---- steps --------------------------------------------------------------------------------------

local DUE, ROW = 4503599627370496, '\220\0\17' -- the head of an array of 17 columns
local places = {} -- of runs in texts
local texts, rets, entries = {}, {}, {} -- entries: keys of journals in turn with what is added
local gone, adds, puts = false, false, false -- adds: keys and members of sorted sets
local ended, is_ready = false, false
for i = 1, n do
    local epoch, inbox, seq, number, count, entry, set, values, timers
    at, epoch, inbox, seq, number, count, entry, set, values, timers = take(ARGV[1], 9, at)
    local id = ids:sub(16 * i - 15, 16 * i)
    local place = places[id]
    raw = place and texts[place] or raws[i + 1]
    if not raw or raw:sub(1, 3) ~= ROW then return false end
    local from, handler, key, lane, status, terminal, owner, is_epoch = take(raw, 7, 3)
    local rest, journal, has = take(raw, 2, from)
    if owner ~= session or is_epoch ~= epoch or (inbox and inbox ~= has) or
        journal + 1 ~= number then
        return false
    end
    journal = journal + count
    if set then
        local _, _, created, _, priority, attempt, group, reason, extra = take(raw, 8, rest)
        local ended_at, due, is_found, mask, tried, why, more
        at, status, terminal, ended_at, due, is_found, mask, tried, why, more =
            take(ARGV[1], 9, at)
        if mask % 8 >= 4 then attempt = tried end
        if mask % 16 >= 8 then reason = why end
        if mask % 32 >= 16 then extra = more end
        raw = ROW .. pack(handler, key, lane, status, terminal, 0, epoch, journal, has, due,
                          created, ended_at, priority, attempt, group, reason, extra)
        gone = gone or {}
        gone[#gone + 1] = id
        if terminal == 1 then
            -- in no set
        elseif due then
            adds = adds or {}
            adds[#adds + 1] = K .. 'q:' .. handler
            adds[#adds + 1] = struct.pack('>I8', due + DUE) .. id
            is_ready = is_ready or due <= now
        elseif is_found then
            adds = adds or {}
            adds[#adds + 1] = K .. 'w:' .. status .. ':' .. handler
            adds[#adds + 1] = id
        end
    else
        raw = raw:sub(1, from) .. pack(journal, has) .. raw:sub(rest + 1)
    end
    if terminal == 1 then ended = (ended or '') .. '\0\17r' .. id end
    if not place then
        place = #texts + 2
        places[id] = place
        texts[place - 1] = keys[i + 1]
    end
    texts[place] = raw
    if values then -- space, key, run, revision, bytes in turn
        puts, adds = puts or {}, adds or {}
        for k = 1, #values, 5 do
            local of = values[k] .. '\0' .. values[k + 1]
            if puts[of] then return false end
            puts[of] = true
            local v = call('HGET', K .. 'v:' .. values[k], values[k + 1])
            local version = 0
            if v then
                _, version = take(v, 1, 1)
            else
                adds[#adds + 1] = K .. 'x:' .. values[k]
                adds[#adds + 1] = values[k + 1]
            end
            puts[#puts + 1] = K .. 'v:' .. values[k]
            puts[#puts + 1] = values[k + 1]
            puts[#puts + 1] =
                '\148' .. pack(version + 1, values[k + 2], values[k + 3], values[k + 4])
        end
    end
    if timers then
        adds = adds or {}
        for k = 1, #timers do
            local member = timers[k]
            adds[#adds + 1] = K .. 't'
            adds[#adds + 1] = member
            adds[#adds + 1] = K .. 'k:' .. member:sub(9, 24)
            adds[#adds + 1] = member:sub(1, 8) .. member:sub(25)
        end
    end
    entries[2 * i - 1], entries[2 * i] = K .. 'j:' .. id, entry
    rets[2 * i - 1], rets[2 * i] = seq, has
end

-- ---- the look -----------------------------------------------------------------------------------

-- { seq, count, running status, turn, keys of ready sets }
local turn, next_due, grants, news, journals = 0, false, false, false, false
local n_found, members_of, claimed = 0, false, false -- of each ready set; scores and IDs
if look then
    local left, queues = look[2], look[5]
    local found, ready = {}, {}
    turn, grants, members_of, claimed = look[4], {}, {}, {}
    -- Which sets are there at all? Mostly none or one, and then the one that gave a run last;
    -- else halves that have none are left out.
    local froms, uptos, top = { 1 }, { #queues }, 1
    local all = call('EXISTS', unpack(queues))
    if all == 1 and turn > 0 and turn <= #queues and call('EXISTS', queues[turn]) == 1 then
        ready[1], top = turn, 0
    elseif all == 0 then
        top = 0
    end
    while top > 0 do
        local from, upto = froms[top], uptos[top]
        local some = top == 1 and upto - from + 1 == #queues and all or
            call('EXISTS', unpack(queues, from, upto))
        top = top - 1
        if some == upto - from + 1 then
            for i = from, upto do ready[#ready + 1] = i end
        elseif some > 0 then
            local middle = math.floor((from + upto) / 2)
            froms[top + 1], uptos[top + 1] = middle + 1, upto
            froms[top + 2], uptos[top + 2] = from, middle
            top = top + 2
        end
    end
    -- In turn, from the one whose turn it is.
    local start, pages, order = turn % #queues, {}, {}
    for k = 1, #ready do
        if ready[k] > start then order[#order + 1] = ready[k] end
    end
    for k = 1, #ready do
        if ready[k] <= start then order[#order + 1] = ready[k] end
    end
    local heads = {}
    for k = 1, #order do
        pages[k], heads[k] = call('ZRANGE', queues[order[k]], 0, left), 1
    end
    local is_more = true
    while is_more and left > 0 do
        is_more = false
        for k = 1, #order do
            local member = left > 0 and pages[k][heads[k]]
            if member and struct.unpack('>I8', member) - DUE <= now then
                local queue = queues[order[k]]
                local members = members_of[queue] or {}
                n_found = n_found + 1
                found[n_found], members[#members + 1] = member, member
                members_of[queue] = members
                left, turn, heads[k], is_more = left - 1, order[k], heads[k] + 1, true
            end
        end
    end
    for k = 1, #order do
        local member = pages[k][heads[k]]
        local due = member and struct.unpack('>I8', member) - DUE
        if due and (not next_due or due < next_due) then next_due = due end
    end
    if n_found == 0 and n == 0 then -- not remembered: an idle worker would make the server flush
        return '\151' .. pack(now, turn, {}, next_due, '\144', '\144', grants)
    end
    local rows = {}
    for k = 1, n_found do rows[k] = K .. 'r:' .. found[k]:sub(9) end
    local raws = n_found > 0 and call('MGET', unpack(rows)) or rows
    for k = 1, n_found do
        local id, raw = found[k]:sub(9), raws[k]
        -- An entry that no row stands for, or two: damage, which the other script mends.
        if not raw or raw:sub(1, 3) ~= ROW or places[id] then return false end
        local from, handler, key, lane, status, terminal, owner, epoch = take(raw, 7, 3)
        local rest, journal, inbox, due = take(raw, 3, from)
        if owner ~= 0 or terminal ~= 0 or not due or due > now then return false end
        epoch = epoch + 1
        if sticky:byte(status + 1) ~= 49 then status = look[3] end
        local place = #texts + 2
        places[id] = place
        texts[place - 1] = rows[k]
        texts[place] = ROW .. pack(handler, key, lane, status, terminal, session, epoch, journal,
                                   inbox, due) .. raw:sub(rest + 1)
        grants[3 * k - 2], grants[3 * k - 1], grants[3 * k] = id, epoch, inbox
        claimed[2 * k - 1], claimed[2 * k] = '0', id
        -- What whoever gets it would read next, if it is small.
        if inbox > 0 or epoch == 1 then
            local entry = call('LINDEX', K .. (inbox > 0 and 'i:' or 'j:') .. id, -1)
            if entry and #entry <= 4096 then
                local number, count = 1, journal
                if inbox == 0 then number, count = struct.unpack('>I8I4', entry) end
                if inbox > 0 then
                    news = news or {}
                    news[#news + 1] = id
                    news[#news + 1] = entry
                elseif number == 1 and count == journal then
                    journals = journals or {}
                    journals[#journals + 1] = id
                    journals[#journals + 1] = entry
                end
            end
        end
    end
end

-- ---- writing ------------------------------------------------------------------------------------

for i = 1, 2 * n, 2 do call('RPUSH', entries[i], entries[i + 1]) end
call('MSET', unpack(texts))
if gone then call('ZREM', K .. 'o:' .. session, unpack(gone)) end
if n_found > 0 then
    for queue, members in pairs(members_of) do call('ZREM', queue, unpack(members)) end
    call('ZADD', K .. 'o:' .. session, unpack(claimed))
end
if adds then
    for k = 1, #adds, 2 do call('ZADD', adds[k], '0', adds[k + 1]) end
end
if puts then
    for k = 1, #puts, 3 do call('HSET', puts[k], puts[k + 1], puts[k + 2]) end
end
rets = pack(rets)
grants = grants and pack(grants) or '\144'
call('SET', memory_key, '\146' .. pack(last) .. '\149' .. pack(first, last, false) .. rets ..
    (look and '\147' .. pack(look[1], next_due) .. grants or '\194'), 'PX', '604800000')

-- ---- hints, as redis_commit.lua gives them ------------------------------------------------------

if publishes then
    redis.pcall('PUBLISH', K .. 'n', committer) -- more than all of them
elseif hints then
    if is_ready then
        local entry = redis.pcall('XADD', K .. 'h', 'MAXLEN', '~', 1000, '*', 'c', committer)
        if type(entry) == 'string' then
            redis.pcall('PUBLISH', K .. 'n',
                        committer .. struct.pack('>I2', #entry + 1) .. 'w' .. entry)
        end
    end
    if ended then redis.pcall('PUBLISH', K .. 'e', committer .. ended) end
end
return '\151' .. pack(now, turn) .. rets ..
    pack(next_due, news and pack(news) or '\144', journals and pack(journals) or '\144') .. grants
