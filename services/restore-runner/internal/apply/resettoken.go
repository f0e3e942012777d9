package apply

import (
	"encoding/json"
	"regexp"
	"strings"
)

const (
	tokenSecret     = "kubernetes.io/service-account-token"
	accountAnnot    = "kubernetes.io/service-account.name"
	accountUIDAnnot = "kubernetes.io/service-account.uid"
	lastUsedLabel   = "kubernetes.io/legacy-token-last-used" // a date that the API server writes
)

// accountPath is where the ServiceAccount admission mounts the account's token.
const accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// generatedSuffix is what API servers and controllers append to a name to make it unique.
var generatedSuffix = regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// dropAccountToken removes the volume, and its mounts, that the ServiceAccount admission added to a
// pod: it is mounted nowhere but at accountPath, and holds what the admission puts there. The
// admission adds it again.
func dropAccountToken(spec object) {
	if spec["automountServiceAccountToken"] == false {
		return // the admission adds none
	}
	containers := append(objectList(spec, "containers"), objectList(spec, "initContainers")...)
	mounted, elsewhere := map[string]bool{}, map[string]bool{}
	for _, container := range containers {
		for _, mount := range objectList(container, "volumeMounts") {
			if mount["mountPath"] == accountPath && mount["readOnly"] == true {
				mounted[textOf(mount, "name")] = true
			} else {
				elsewhere[textOf(mount, "name")] = true
			}
		}
	}
	dropped := map[string]bool{}
	filterList(spec, "volumes", func(volume object) bool {
		name := textOf(volume, "name")
		dropped[name] = mounted[name] && !elsewhere[name] && holdsAccountToken(volume, textOf(spec, "serviceAccountName"))
		return !dropped[name]
	})
	for _, container := range containers {
		filterList(container, "volumeMounts", func(mount object) bool { return !dropped[textOf(mount, "name")] })
	}
}

// holdsAccountToken reports that a volume is as the ServiceAccount admission makes it: a projected
// token of the API server, or, before Kubernetes 1.24, the Secret that the token controller made.
func holdsAccountToken(volume object, account string) bool {
	name := textOf(volume, "name")
	if secret := childObject(volume, "secret"); secret != nil {
		suffix, ok := strings.CutPrefix(name, account+"-token-")
		return ok && account != "" && generatedSuffix.MatchString(suffix) && textOf(secret, "secretName") == name && secret["items"] == nil
	}
	token := false
	for _, source := range objectList(childObject(volume, "projected"), "sources") {
		projected := childObject(source, "serviceAccountToken")
		switch {
		case projected != nil && textOf(projected, "path") == "token" && textOf(projected, "audience") == "":
			token = true
		case source["downwardAPI"] != nil:
		case textOf(childObject(source, "configMap"), "name") == "kube-root-ca.crt":
		case textOf(childObject(source, "configMap"), "name") == "openshift-service-ca.crt":
		default:
			return false
		}
	}
	return token && strings.HasPrefix(name, "kube-api-access-")
}

// resetServiceAccount drops references to the token Secrets that the token controller made, and
// entered by itself: those of Kubernetes before 1.24.
func resetServiceAccount(obj object, _ *ResetOptions) {
	var entered, users object
	for _, entry := range objectList(childObject(obj, "metadata"), "managedFields") {
		fields := childObject(entry, "fieldsV1", "f:secrets")
		if textOf(entry, "manager") == "kube-controller-manager" {
			entered = overlayMembers(entered, fields)
		} else {
			users = overlayMembers(users, fields)
		}
	}
	if len(entered) == 0 {
		return
	}
	filterList(obj, "secrets", func(ref object) bool {
		key, err := json.Marshal(object{"name": ref["name"]})
		return err != nil || entered["k:"+string(key)] == nil || users["k:"+string(key)] != nil
	})
}

// resetSecret makes a ServiceAccount token Secret one that the token controller fills for the new
// account.
func resetSecret(obj object, _ *ResetOptions) {
	if textOf(obj, "type") != tokenSecret {
		return
	}
	dropKeys(childObject(obj, "metadata", "annotations"), accountUIDAnnot)
	meta := childObject(obj, "metadata")
	if labels := childObject(meta, "labels"); labels[lastUsedLabel] != nil {
		if delete(labels, lastUsedLabel); len(labels) == 0 {
			delete(meta, "labels")
		}
	}
	dropKeys(childObject(obj, "data"), "token", "ca.crt", "namespace")
}

// TokenAccount returns the ServiceAccount whose token a stored Secret holds, "" where it holds none.
func TokenAccount(secret map[string]any) string {
	if textOf(secret, "type") != tokenSecret {
		return ""
	}
	return textOf(childObject(secret, "metadata", "annotations"), accountAnnot)
}
