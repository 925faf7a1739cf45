-- The two refusals of globals. Redis 6.2 shows where in its own prelude they stand, so the lines matter: 8 and 15.
-- No line may be added or taken above them.
local exists, keep = ...

local function create(env, name, value)
  if not exists(name) then
    -- The position is that of the script.
    error("Script attempted to create global variable '" .. tostring(name) .. "'", 2)
  end
  keep(env, name, value)
end

local function access(_, name)
  -- Here, too.
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

return create, access
