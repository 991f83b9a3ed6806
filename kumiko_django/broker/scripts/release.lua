-- For a job that was settled by other means.
leave()
return 0
