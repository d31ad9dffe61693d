-- GET: the jobs of these ids. ARGV are the ids; answers a JobRow for each, empty where there is none.

local answer = {}
for _, id in ipairs(ARGV) do
  local seq = seq_of(id)
  if not seq or not add_job(answer, seq) then
    local size = #answer
    for at = 1, ROW_SIZE do
      answer[size + at] = false
    end
  end
end
return answer
