package layout

import "strings"

// suffixes are how the names of files end that are named after their backup or restore.
var suffixes = []struct{ suffix, kind string }{
	{"-logs.gz", "log"},
	{"-resource-list.json.gz", "resource list"},
	{"-results.gz", "results"},
	{"-volumeinfo.json.gz", "volume info"},
	{"-itemoperations.json.gz", "item operations"},
	{"-csi-volumesnapshots.json.gz", "CSI snapshots"},
	{"-csi-volumesnapshotcontents.json.gz", "CSI snapshot contents"},
	{"-volumesnapshots.json.gz", "volume snapshots"},
	{"-podvolumebackups.json.gz", "pod volume backups"},
	{".tar.gz", "tarball"},
}

// KindOf names the kind of the object with a key, such as "part": for people, and one of few
// whatever the key is. What is none of this package's names is "object".
func KindOf(key string) string {
	if b, ok := BackupName(key); ok {
		rest := key[len(BackupsDir)+len(b)+1:]
		switch {
		case rest == "velero-backup.json":
			return "metadata"
		case rest == "holdfast-owner.json":
			return "owner"
		case rest == "manifest.json.gz", rest == "manifest-rebuilt.json.gz":
			return "manifest"
		case strings.HasPrefix(rest, "deletion/"):
			return "deletion record"
		case strings.HasPrefix(rest, "parts/"):
			return kindOfPart(rest[len("parts/"):])
		}
		return kindOfFile(strings.TrimPrefix(rest, b))
	}
	if strings.HasPrefix(key, PlansDir) {
		return "plan"
	}
	r, ok := RestoreName(key)
	if !ok {
		return "object"
	}
	rest := key[len(RestoresDir)+len(r)+1:]
	if strings.HasPrefix(rest, "records/") {
		return "restore record"
	}
	return kindOfFile(strings.TrimPrefix(strings.TrimPrefix(rest, "restore-"), r))
}

// kindOfPart is KindOf below the directory of the parts of a backup.
func kindOfPart(rest string) string {
	_, name, _ := strings.Cut(rest, "/")
	switch {
	case strings.HasSuffix(name, sidecarSuffix):
		return "sidecar"
	case strings.HasPrefix(name, "checkpoint-"):
		return "checkpoint"
	case name == "composition":
		return "composition"
	case strings.HasPrefix(name, "operations/"):
		return "operation record"
	case name == "failure", name == "post-operation", strings.HasPrefix(name, "post-hooks-"):
		return "backup record"
	case name != "" && name[0] >= '0' && name[0] <= '9': // its epoch
		return "part"
	}
	return "object"
}

// kindOfFile is KindOf of a file without the name of its job.
func kindOfFile(rest string) string {
	for _, s := range suffixes {
		if rest == s.suffix {
			return s.kind
		}
	}
	return "object"
}
