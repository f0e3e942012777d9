package debug

import (
	"regexp"
	"strings"
)

// secretKey is a key whose text is a secret, unless it ends as reference does.
var (
	secretKey = regexp.MustCompile(`(?i)` + secretWord + `|(?:pass|sig)$`)
	reference = regexp.MustCompile(`(?i)(name|namespace|ref|refs|file|path|mode|audience|policy)$`)
)

// harmless are the keys of configs that hold no secret: those that the object stores of Holdfast
// and the plugins of Velero's project for aws, gcp and azure document.
var harmless = map[string]bool{
	"region": true, "s3Url": true, "publicUrl": true, "s3ForcePathStyle": true, "signatureVersion": true, "profile": true, "serverSideEncryption": true,
	"kmsKeyId": true, "kmsKeyName": true, "checksumAlgorithm": true, "insecureSkipTLSVerify": true, "enableSharedConfig": true, "path": true,
	"resourceGroup": true, "storageAccount": true, "storageAccountURI": true, "subscriptionId": true, "blockSizeInBytes": true, "useAAD": true,
	"snapshotLocation": true, "project": true, "apiTimeout": true, "incremental": true, "serviceAccount": true,
}

// annotations are the beginnings of the names of annotations that are kept.
var annotations = []string{"holdfast.io/", "velero.io/", "deployment.kubernetes.io/", "meta.helm.sh/", "coordination.k8s.io/"}

// configs are keys of maps whose keys plugins define.
var configs = map[string]bool{"config": true, "dataMoverConfig": true, "repositoryConfig": true, "parameters": true, "pluginConfig": true}

// scrubObject removes the secrets of an object as the API server sends it, in place. Of a Secret nothing
// stays but its metadata.
func scrubObject(object map[string]any) {
	if object["kind"] == "Secret" {
		for key := range object {
			if key != "kind" && key != "apiVersion" && key != "metadata" {
				delete(object, key)
			}
		}
	}
	if meta, ok := object["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	scrubFields(object)
}

// scrubAnnotations marks the annotations of others, those of templates too: kubectl's has the whole object
// in it, hooks have commands.
func scrubAnnotations(all map[string]any) {
	for key := range all {
		kept := false
		for _, prefix := range annotations {
			kept = kept || strings.HasPrefix(key, prefix)
		}
		if !kept {
			all[key] = scrubMark
		}
	}
	scrubFields(all)
}

// scrubFields scrubs a map, whatever it is.
func scrubFields(m map[string]any) {
	_, named := m["name"].(string)
	for key, value := range m {
		text, isText := value.(string)
		nested, isMap := value.(map[string]any)
		list, isList := value.([]any)
		switch {
		case isText && text == "":
		case isText && (key == "value" && named || key == "downloadURL" || key == "caCert" || secretKey.MatchString(key) && !reference.MatchString(key)):
			m[key] = scrubMark
		case isText:
			m[key] = scrubText(text)
		case isMap && configs[key]:
			scrubConfig(nested)
		case isMap && key == "annotations":
			scrubAnnotations(nested)
		case isMap:
			scrubFields(nested)
		case isList && (key == "command" || key == "args"):
			scrubCommand(list, key == "command")
		case isList:
			scrubItems(list, secretKey.MatchString(key))
		}
	}
}

func scrubItems(list []any, secret bool) {
	for i, item := range list {
		switch v := item.(type) {
		case string:
			list[i] = scrubText(v)
			if secret {
				list[i] = scrubMark
			}
		case map[string]any:
			scrubFields(v)
		case []any:
			scrubItems(v, secret)
		}
	}
}

// scrubConfig marks what is not known to be harmless.
func scrubConfig(m map[string]any) {
	for key, value := range m {
		text, ok := value.(string)
		switch {
		case ok && harmless[key]:
			m[key] = scrubText(text)
		case ok && text == "":
		default:
			m[key] = scrubMark
		}
	}
}

// scrubCommand are a command: its program and its flags stay, other words may be anything.
func scrubCommand(list []any, command bool) {
	for i, item := range list {
		word, ok := item.(string)
		switch {
		case ok && secretFlag(word):
			list[i] = word[:strings.IndexByte(word, '=')+1] + scrubMark
		case ok && (i == 0 && command || strings.HasPrefix(word, "--")):
			list[i] = scrubText(word)
		case ok:
			list[i] = scrubMark
		}
	}
}

// secretFlag reports whether a word is a flag with its value, and the value a secret to its end.
func secretFlag(word string) bool {
	name, _, found := strings.Cut(word, "=")
	return found && strings.HasPrefix(name, "--") && secretKey.MatchString(name) && !reference.MatchString(name)
}
