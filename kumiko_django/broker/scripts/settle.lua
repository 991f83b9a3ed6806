-- Settles a job, stores its record, gives back what it held, and fetches the next one.
--   plan.records, plan.field, plan.record   where the record goes; without a field there is none
--   plan.rewritten                          the job, where its data is written, too
--   plan.fetches                            whether the next job is taken
local answer = settle()
if type(answer) == "number" and answer < 0 then return answer end
if plan.field then call("HSET", plan.records, plan.field, all_args[#all_args - 1]) end
if plan.rewritten then call("HSET", plan.rewritten, "data", all_args[#all_args - 2]) end
leave()
if plan.fetches then return fetch() end
return answer
