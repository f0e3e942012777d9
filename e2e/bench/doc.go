// Package bench measures Holdfast's services side by side with the API server they talk to, in one
// run on one machine, and reports ratios: the wall time of a backup beside a paged raw list of the
// same objects, the rate of a restore beside the best raw create rate, the work of a backup whose
// runner is killed at half beside the same backup undisturbed. What a killed runner costs is one or
// two pages of 2,000 objects, whatever the size, so that ratio falls as the backup grows.
package bench
