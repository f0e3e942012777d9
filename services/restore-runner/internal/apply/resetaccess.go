package apply

// resetBinding follows the namespace mapping in the subjects of role bindings.
func resetBinding(obj object, o *ResetOptions) {
	if o.MapNamespace == nil {
		return
	}
	for _, subject := range objectList(obj, "subjects") {
		if ns := textOf(subject, "namespace"); ns != "" {
			subject["namespace"] = o.MapNamespace(ns)
		}
	}
}
