package kubetest

// Collect deletes what the garbage collector of a cluster would: objects all of whose owners are
// gone. An owner is known by its UID alone; one of the same name that is not the same object does
// not count.
func (s *Server) Collect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.storage.collectGarbage() {
	}
}

// collectGarbage deletes what is garbage now, and reports whether there was any.
func (s *objectStorage) collectGarbage() bool {
	live := map[any]bool{}
	s.eachObject(func(_ *objectHistory, object map[string]any) { live[Meta(object)["uid"]] = true })
	var garbage []target
	s.eachObject(func(r *objectHistory, object map[string]any) {
		if isOrphaned(object, live) {
			garbage = append(garbage, r.target)
		}
	})
	for _, t := range garbage {
		s.removeObject(t)
	}
	return len(garbage) > 0
}

func isOrphaned(object map[string]any, live map[any]bool) bool {
	owners, _ := Meta(object)["ownerReferences"].([]any)
	for _, o := range owners {
		if owner, ok := o.(map[string]any); ok && live[owner["uid"]] {
			return false
		}
	}
	return len(owners) > 0
}
