package plugin

// ConfigSelector returns the label selector of the ConfigMap that configures a plugin by Velero's
// convention: its owner labels it, in the server's namespace (Job.Namespace), with
// velero.io/plugin-config and with the plugin's name as key and its kind as value. None means the
// plugin's defaults; several are a mistake to report.
func ConfigSelector(kind Kind, name string) string {
	return "velero.io/plugin-config," + name + "=" + string(kind)
}
