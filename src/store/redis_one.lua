-- One run, by its name, for whoever has it parked: granted if it is due. As redis_steps.lua:
-- applied as a whole, or nothing is done. One that is not to be had is answered, and not
-- remembered. KEYS[1]: "{prefix}:". ARGV[1]: see one_encode() of redis_quick.c.

local K = KEYS[1]
local call, pack, take = redis.call, cmsgpack.pack, cmsgpack.unpack_limit
local _, committer, advance, seq, publishes, sticky, id, session, running, handlers =
    take(ARGV[1], 9, 0)

local ROW = '\220\0\17' -- the head of an array of 17 columns
local memory_key, row_key = K .. 'c:' .. committer, K .. 'r:' .. id
local raws = call('MGET', memory_key, row_key)
local memory, raw = raws[1], raws[2]
if memory then -- an array of more than 15 has a longer head
    local _, last = take(memory, 1, memory:byte() == 220 and 3 or 1)
    if last >= seq then return false end
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + advance
if not raw then return '\145' .. pack(now) end
if raw:sub(1, 3) ~= ROW then return false end
local rest, handler, key, lane, status, terminal, owner, epoch, journal, inbox, due =
    take(raw, 10, 3)
if owner ~= 0 or terminal == 1 or not due or due > now then return '\145' .. pack(now) end
local is_served = handlers:find('\0' .. handler .. '\0', 1, true)
local s = call('HGET', K .. 's', session)
local lease, is_closed = 0, false
if s then _, _, _, _, _, lease, is_closed = take(s, 6, 1) end
if not is_served or is_closed or lease <= now then return '\145' .. pack(now) end
local entry = inbox > 0 and call('LINDEX', K .. 'i:' .. id, -1)
local news = entry and #entry <= 4096 and pack({ id, entry }) or '\144'

call('ZREM', K .. 'q:' .. handler, struct.pack('>I8', due + 4503599627370496) .. id)
if sticky:byte(status + 1) ~= 49 then status = running end
epoch = epoch + 1
call('SET', row_key, ROW .. pack(handler, key, lane, status, terminal, session, epoch, journal,
                                 inbox, due) .. raw:sub(rest + 1))
call('ZADD', K .. 'o:' .. session, 0, id)
local grants = { id, epoch, inbox }
call('SET', memory_key, '\146' .. pack(seq) .. '\149' ..
    pack(seq, seq, false, {}, { seq, false, grants }), 'PX', 604800000)
if publishes then redis.pcall('PUBLISH', K .. 'n', committer) end
return '\148' .. pack(now, news, '\144', grants)
