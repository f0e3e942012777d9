package reference

func podReferences(s *objectScan, raw []byte) { podSpec(s, s.valueAt(raw, "spec")) }

func podTemplateReferences(s *objectScan, raw []byte) {
	podSpec(s, s.valueWithin(raw, "spec", "template", "spec"))
}

func cronJob(s *objectScan, raw []byte) {
	podSpec(s, s.valueWithin(raw, "spec", "jobTemplate", "spec", "template", "spec"))
}

func statefulSet(s *objectScan, raw []byte) {
	s.walkObject(s.valueAt(raw, "spec"), func(s *objectScan, key, value []byte) {
		switch string(key) {
		case "serviceName":
			s.addLocalReference(services, value, GovernedBy)
		case "template":
			podSpec(s, s.valueAt(value, "spec"))
		}
	})
}

func podSpec(s *objectScan, spec []byte) {
	s.walkObject(spec, func(s *objectScan, key, value []byte) {
		switch string(key) {
		case "volumes":
			s.walkList(value, podVolume)
		case "containers", "initContainers", "ephemeralContainers":
			s.walkList(value, containerReferences)
		case "imagePullSecrets":
			s.walkList(value, pullSecret)
		case "serviceAccountName":
			s.addLocalReference(serviceAccounts, value, RunsAs)
		case "priorityClassName":
			s.addReference(priorityClasses, "", value, RankedBy)
		}
	})
}

func pullSecret(s *objectScan, value []byte) {
	s.addLocalReference(secrets, s.valueAt(value, "name"), PullsWith)
}

func podVolume(s *objectScan, value []byte) {
	s.walkObject(value, func(s *objectScan, key, value []byte) {
		switch string(key) {
		case "persistentVolumeClaim":
			s.addLocalReference(claims, s.valueAt(value, "claimName"), Claims)
		case "configMap":
			s.addLocalReference(configMaps, s.valueAt(value, "name"), Mounts)
		case "secret":
			s.addLocalReference(secrets, s.valueAt(value, "secretName"), Mounts)
		case "projected":
			s.walkList(s.valueAt(value, "sources"), projectedVolumeReferences)
		}
	})
}

func projectedVolumeReferences(s *objectScan, value []byte) {
	s.walkObject(value, func(s *objectScan, key, value []byte) {
		switch string(key) {
		case "configMap":
			s.addLocalReference(configMaps, s.valueAt(value, "name"), Mounts)
		case "secret":
			s.addLocalReference(secrets, s.valueAt(value, "name"), Mounts)
		}
	})
}

func containerReferences(s *objectScan, value []byte) {
	s.walkObject(value, func(s *objectScan, key, value []byte) {
		switch string(key) {
		case "env":
			s.walkList(value, func(s *objectScan, v []byte) { s.walkObject(s.valueAt(v, "valueFrom"), environmentReferences) })
		case "envFrom":
			s.walkList(value, func(s *objectScan, v []byte) { s.walkObject(v, environmentReferences) })
		}
	})
}

// environmentReferences reads a source of one variable or of many: their field names differ.
func environmentReferences(s *objectScan, key, value []byte) {
	switch string(key) {
	case "configMapKeyRef", "configMapRef":
		s.addLocalReference(configMaps, s.valueAt(value, "name"), Reads)
	case "secretKeyRef", "secretRef":
		s.addLocalReference(secrets, s.valueAt(value, "name"), Reads)
	}
}
