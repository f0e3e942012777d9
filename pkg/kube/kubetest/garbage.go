package kubetest

// Collect deletes what the garbage collector of a cluster would: objects all of whose owners are
// gone. An owner is known by its UID alone; one of the same name that is not the same object does
// not count.
func (s *Server) Collect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.storage.collect() {
	}
}

// collect deletes what is garbage now, and reports whether there was any.
func (s *storage) collect() bool {
	live := map[any]bool{}
	s.each(func(_ *record, object map[string]any) { live[Meta(object)["uid"]] = true })
	var garbage []target
	s.each(func(r *record, object map[string]any) {
		if orphaned(object, live) {
			garbage = append(garbage, r.target)
		}
	})
	for _, t := range garbage {
		s.remove(t)
	}
	return len(garbage) > 0
}

func orphaned(object map[string]any, live map[any]bool) bool {
	owners, _ := Meta(object)["ownerReferences"].([]any)
	for _, o := range owners {
		if owner, ok := o.(map[string]any); ok && live[owner["uid"]] {
			return false
		}
	}
	return len(owners) > 0
}
