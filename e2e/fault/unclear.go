package fault

import "maps"

// A call that a dead process had announced may have been made. It is not made again, and what it
// was made for has an error about it: that much differs from the undisturbed run by right.
var (
	unclearSnapshot = Facts{
		"phase": "^PartiallyFailed$", "errors": "^1$",
		"document NAME-results.gz":              "ended around CreateSnapshot, which is not called again",
		"document NAME-volumeinfo.json.gz":      `"result":"failed"`,
		"document NAME-volumesnapshots.json.gz": `"status":{"phase":"Failed"}`,
	}
	unclearBackupCall = Facts{
		"phase": "^PartiallyFailed$", "errors": "^1$",
		"document NAME-results.gz": "Execute of PodTemplate .* it is not made again",
		"listed " + storedAlone:    "", "stored " + storedAlone: "", "stored " + storedPreferred: "",
	}
	unclearRestoreCall = Facts{
		"phase": "^PartiallyFailed$", "errors": "^1$",
		"document restore-NAME-results.gz":            "Execute of PodTemplate .* it is not made again",
		"document restore-NAME-resource-list.json.gz": `NAME/one\(failed\)`,
		"object PodTemplate NAME/one":                 "",
	}
)

// Where the object that actions are called for lies in a backup.
const (
	storedAlone     = "resources/" + acted + "/namespaces/" + actions + "/one.json"
	storedPreferred = "resources/" + acted + "/v1-preferredversion/namespaces/" + actions + "/one.json"
)

// withoutFact adds that there is no such fact.
func withoutFact(changes Facts, fact string) Facts {
	changes = maps.Clone(changes)
	changes[fact] = ""
	return changes
}
