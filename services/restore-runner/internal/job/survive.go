package job

import "runtime/debug"

// survive turns a panic of do, which would be a defect of ours, into the end of this restore: tried again, it would come
// again, under a claim that lives as long as the process does.
func (j *job) survive(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			j.log.Error("restore panicked", "panic", p, "stack", string(debug.Stack()))
			err = fatal("internal error")
		}
	}()
	return do()
}
