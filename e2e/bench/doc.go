// Package bench measures Holdfast's services side by side with the API server they talk to, in one run on one machine, and reports ratios:
// the wall time of a backup beside a paged raw list of the same objects, the rate of a restore beside the best raw create rate.
package bench
