-- Reads of a Redis store that need more than one command. Writes nothing.
--
-- KEYS[1]: "{prefix}:". ARGV[1]: which read; the others are its arguments.

local K = KEYS[1]
local call = redis.call

local reads = {}

-- A page of runs: the set to walk, from where ("" the beginning), "1" newest first, how many to
-- look at, how many to give, the filter (packed; "" none). Answers where it stopped ("" the end was
-- reached), then ID and row in turn.
function reads.runs(set, from, is_reverse, scan, want, filter)
    local ids
    if is_reverse == '1' then
        ids = call('ZREVRANGEBYLEX', set, from == '' and '+' or '(' .. from, '-', 'LIMIT', 0, scan)
    else
        ids = call('ZRANGEBYLEX', set, from == '' and '-' or '(' .. from, '+', 'LIMIT', 0, scan)
    end
    local f = filter ~= '' and cmsgpack.unpack(filter)
    local found, stopped = { '' }, #ids == tonumber(scan) and ids[#ids] or ''
    for i = 1, #ids do
        local raw = call('GET', K .. 'r:' .. ids[i])
        local r = raw and f and cmsgpack.unpack(raw)
        if raw and (not f or
            ((not f[1] or r[1] == f[1]) and
             (not f[2] or r[1]:sub(1, #f[2]) == f[2]) and
             (not f[3] or r[2] == f[3]) and
             (not f[4] or f[4][r[4] + 1]) and
             r[11] >= f[5] and (f[6] == 0 or r[11] <= f[6]) and
             (f[7] == 0 or r[6] == f[7]))) then
            found[#found + 1] = ids[i]
            found[#found + 1] = raw
            if #found > 2 * tonumber(want) then
                stopped = ids[i]
                break
            end
        end
    end
    found[1] = stopped
    return found
end

-- Entries of a journal from a revision on. Entries hold one fact or more, so the revision's own
-- entry is not later than its number; it is found by halving.
function reads.journal(id, from, limit)
    local key = K .. 'j:' .. id
    local low, high = 0, math.min(call('LLEN', key), tonumber(from)) - 1
    from = tonumber(from)
    while low < high do
        local middle = math.ceil((low + high) / 2)
        if struct.unpack('>I8', call('LINDEX', key, middle)) <= from then
            low = middle
        else
            high = middle - 1
        end
    end
    local list = call('LRANGE', key, low, low + limit - 1)
    if list[1] then
        local first, count = struct.unpack('>I8I4', list[1])
        if first + count <= from then
            table.remove(list, 1)
            list[#list + 1] = call('LINDEX', key, low + limit) or nil
        end
    end
    return list
end

-- Entries of an inbox from a sequence on, behind how many were removed before the first there is.
function reads.inbox(id, from, limit)
    local gone = tonumber(call('GET', K .. 'b:' .. id) or 0)
    local at = math.max(tonumber(from) - 1 - gone, 0)
    local list = call('LRANGE', K .. 'i:' .. id, at, at + limit - 1)
    table.insert(list, 1, string.format('%.0f', gone + at))
    return list
end

-- Values of a space: bounds as ZRANGEBYLEX takes them. Answers key and value in turn.
function reads.values(space, low, high, limit)
    local keys = call('ZRANGEBYLEX', K .. 'x:' .. space, low, high, 'LIMIT', 0, limit)
    local found = {}
    for i = 1, #keys do
        local raw = call('HGET', K .. 'v:' .. space, keys[i])
        if raw then
            found[#found + 1] = keys[i]
            found[#found + 1] = raw
        end
    end
    return found
end

-- What is due first of these handlers (names that end in NUL), "" for nothing: one question, however
-- many a worker serves.
function reads.due(handlers)
    local first = ''
    for handler in handlers:gmatch('[^%z]+') do
        local entry = call('ZRANGE', K .. 'q:' .. handler, 0, 0)[1]
        if entry and #entry == 24 and (first == '' or entry < first) then first = entry end
    end
    return first
end

-- Timers up to a bound ("" all of them), then the first behind those that are given, or "".
function reads.timers(bound, limit)
    local key = K .. 't'
    local found = call('ZRANGEBYLEX', key, '-', bound == '' and '+' or '(' .. bound, 'LIMIT', 0,
                       limit + 1)
    if #found <= tonumber(limit) then
        found[#found + 1] = bound ~= '' and
            call('ZRANGEBYLEX', key, '[' .. bound, '+', 'LIMIT', 0, 1)[1] or ''
    end
    return found
end

-- Of these IDs, those that have no row.
function reads.missing(ids)
    local found = {}
    for i = 1, #ids, 16 do
        local id = ids:sub(i, i + 15)
        if call('EXISTS', K .. 'r:' .. id) == 0 then found[#found + 1] = id end
    end
    return table.concat(found)
end

return reads[ARGV[1]](unpack(ARGV, 2))
