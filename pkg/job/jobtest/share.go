package jobtest

import "os"

// EveryWrite is the environment variable that, when it is not empty, selects every write.
const EveryWrite = "EVERY_WRITE"

// WriteStride is the distance between the writes at which tests end a job: 1 if EVERY_WRITE is set, as
// `make test` does without the race detector.
func WriteStride() int {
	if os.Getenv(EveryWrite) != "" {
		return 1
	}
	return 13
}
