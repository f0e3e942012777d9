package layout

// MaintenanceDir holds one directory for each namespace whose repository is maintained.
const MaintenanceDir = MetadataDir + "holdfast/maintenance/"

// MaintenanceRecords is the prefix of the records about the maintenance of a namespace's repository.
func MaintenanceRecords(namespace string) string { return MaintenanceDir + namespace + "/" }
