-- GET: the jobs of these ids. ARGV are the ids; answers five values for each, five times nothing where there is none.

local answer = {}
for _, id in ipairs(ARGV) do
  local seq = seq_of(id)
  if not seq or not add_job(answer, seq) then
    local size = #answer
    for at = 1, 5 do
      answer[size + at] = false
    end
  end
end
return answer
