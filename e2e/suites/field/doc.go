// Package field tries public reports about backups and restores, each as a small case on a real API server: one file
// cases/<project>-<number>-<words>/case.yaml per report. Everything that a case makes has a name that begins with <project>-<number>, so that cases
// run beside one another. README.md describes the format.
//
//	make field CASE=velero-9393
//
// The runner checks of each restore that nothing is missing of which no warning, error or line of the log speaks, and repeats it: the second one
// changes nothing.
package field
