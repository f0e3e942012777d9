package apply

import (
	"k8s.io/apimachinery/pkg/types"
)

// Manager is the field manager of one restore. It carries the Restore's UID, which is what makes an
// object recognizable as the work of that very restore: labels are copied by controllers, and age
// proves nothing. The empty Manager names nothing and recognizes nothing.
type Manager string

// ManagerOf returns the field manager of the Restore with this UID. A UID has 36 characters; the
// API server allows 128.
func ManagerOf(restore types.UID) Manager {
	if restore == "" {
		return ""
	}
	return Manager("holdfast-restore-" + string(restore))
}

// managerForExisting is the field manager of changes to objects that were there before: changing one does not
// make it the restore's.
func (m Manager) managerForExisting() Manager {
	if m == "" {
		return ""
	}
	return m + "-existing"
}

// IsCreatedByRestore reports whether the restore created the object with this metadata.
func (m Manager) IsCreatedByRestore(meta map[string]any) bool {
	fields, ok := meta["managedFields"].([]any)
	if !ok || m == "" {
		return false
	}
	for _, entry := range fields {
		if e, ok := entry.(map[string]any); ok && e["manager"] == string(m) {
			return true
		}
	}
	return false
}

// Changed reports whether the restore created the object with this metadata, or changed it.
func (m Manager) Changed(meta map[string]any) bool {
	return m.IsCreatedByRestore(meta) || m.managerForExisting().IsCreatedByRestore(meta)
}

// Mark is the managed fields entry that keeps an object recognizable whose stored managed fields
// are written back. It claims the labels of the restore, which are the fields that the restore
// alone has set.
func (m Manager) Mark(apiVersion string, labels map[string]any) map[string]any {
	set := map[string]any{}
	for key := range labels {
		set["f:"+key] = map[string]any{}
	}
	return map[string]any{
		"manager": string(m), "operation": "Update", "apiVersion": apiVersion, "fieldsType": "FieldsV1",
		"fieldsV1": map[string]any{"f:metadata": map[string]any{"f:labels": set}},
	}
}
