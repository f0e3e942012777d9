package reference

func pod(s *scan, raw []byte) { podSpec(s, s.at(raw, "spec")) }

func template(s *scan, raw []byte) { podSpec(s, s.within(raw, "spec", "template", "spec")) }

func cronJob(s *scan, raw []byte) {
	podSpec(s, s.within(raw, "spec", "jobTemplate", "spec", "template", "spec"))
}

func statefulSet(s *scan, raw []byte) {
	s.object(s.at(raw, "spec"), func(s *scan, key, value []byte) {
		switch string(key) {
		case "serviceName":
			s.beside(services, value, GovernedBy)
		case "template":
			podSpec(s, s.at(value, "spec"))
		}
	})
}

func podSpec(s *scan, spec []byte) {
	s.object(spec, func(s *scan, key, value []byte) {
		switch string(key) {
		case "volumes":
			s.list(value, podVolume)
		case "containers", "initContainers", "ephemeralContainers":
			s.list(value, container)
		case "imagePullSecrets":
			s.list(value, pullSecret)
		case "serviceAccountName":
			s.beside(serviceAccounts, value, RunsAs)
		case "priorityClassName":
			s.refer(priorityClasses, "", value, RankedBy)
		}
	})
}

func pullSecret(s *scan, value []byte) { s.beside(secrets, s.at(value, "name"), PullsWith) }

func podVolume(s *scan, value []byte) {
	s.object(value, func(s *scan, key, value []byte) {
		switch string(key) {
		case "persistentVolumeClaim":
			s.beside(claims, s.at(value, "claimName"), Claims)
		case "configMap":
			s.beside(configMaps, s.at(value, "name"), Mounts)
		case "secret":
			s.beside(secrets, s.at(value, "secretName"), Mounts)
		case "projected":
			s.list(s.at(value, "sources"), projected)
		}
	})
}

func projected(s *scan, value []byte) {
	s.object(value, func(s *scan, key, value []byte) {
		switch string(key) {
		case "configMap":
			s.beside(configMaps, s.at(value, "name"), Mounts)
		case "secret":
			s.beside(secrets, s.at(value, "name"), Mounts)
		}
	})
}

func container(s *scan, value []byte) {
	s.object(value, func(s *scan, key, value []byte) {
		switch string(key) {
		case "env":
			s.list(value, func(s *scan, v []byte) { s.object(s.at(v, "valueFrom"), environment) })
		case "envFrom":
			s.list(value, func(s *scan, v []byte) { s.object(v, environment) })
		}
	})
}

// environment reads a source of one variable or of many: their field names differ.
func environment(s *scan, key, value []byte) {
	switch string(key) {
	case "configMapKeyRef", "configMapRef":
		s.beside(configMaps, s.at(value, "name"), Reads)
	case "secretKeyRef", "secretRef":
		s.beside(secrets, s.at(value, "name"), Reads)
	}
}
