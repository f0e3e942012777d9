package request_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/request"
)

const (
	head        = `{"location": "l", "namespace": "app", "passwordFile": "p", `
	restoreOver = `"restore": {"snapshot": "s", "target": "/t", "overwrite": true, `
	good        = head + `"upload": {"source": "/v", "pod": "web-0", "volume": "data"}}`
)

func TestDecode(t *testing.T) {
	r, err := request.Decode(strings.NewReader(good))
	require.NoError(t, err)
	require.Equal(t, 4, r.Parallel)
	require.Equal(t, 5*time.Minute, r.Upload.CheckpointInterval.Duration)
	require.Equal(t, repository.Source{Requester: repository.PodVolume, Namespace: "app", Pod: "web-0", Volume: "data"}, r.Source())
	r, err = request.Decode(strings.NewReader(head + `"upload": {"source": "/v", "volume": "data", "operationID": "du-1"}}`))
	require.NoError(t, err)
	require.Equal(t, repository.Source{Requester: repository.DataUpload, Namespace: "app", Volume: "data", OperationID: "du-1"}, r.Source())
	_, err = request.Decode(strings.NewReader(head + `"restore": {"snapshot": "s", "target": "/t"}}`))
	require.NoError(t, err)
}

func TestDecodeErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:       "location",
		good + "x": "something follows",
		strings.Replace(good, "source", "sauce", 1):                                 "sauce",
		strings.Replace(good, `"location"`, `"place"`, 1):                           "place",
		strings.Replace(good, `"app"`, `"../app"`, 1):                               "namespace",
		strings.Replace(good, `"p"`, `""`, 1):                                       "passwordFile",
		strings.Replace(good, `"/v"`, `""`, 1):                                      "upload.source",
		strings.Replace(good, `"web-0"`, `"a/b"`, 1):                                "upload.pod",
		strings.Replace(good, `"data"`, `"a/b"`, 1):                                 "upload.volume",
		strings.Replace(good, `"data"`, `"data", "operationID": "o"`, 1):            "upload.operationID",
		strings.Replace(good, `"data"`, `"data", "checkpointInterval": "46m"`, 1):   "upload.checkpointInterval",
		strings.Replace(good, `"data"`, `"data", "checkpointInterval": "soon"`, 1):  "invalid duration",
		strings.Replace(good, `"upload"`, `"parallel": 65, "upload"`, 1):            "parallel",
		strings.Replace(good, `"upload"`, `"cacheMiB": -1, "upload"`, 1):            "cacheMiB",
		strings.Replace(good, `"upload"`, `"memoryMiB": -1, "upload"`, 1):           "memoryMiB",
		strings.Replace(good, `"upload"`, `"restore": {}, "upload"`, 1):             "upload: one of",
		head + `"forget": {"snapshots": [""]}}`:                                     "forget.snapshots",
		head + `"forget": {}, "restore": {}}`:                                       "upload: one of",
		head + `"restore": {"target": "/t"}}`:                                       "restore.snapshot",
		head + `"restore": {"snapshot": "s"}}`:                                      "restore.target",
		head + `"restore": {"snapshot": "s", "target": "/t", "deleteExtra": true}}`: "restore.deleteExtra",
		head + `"restore": {"snapshot": "s", "target": "/t", "doneFile": "../x"}}`:  "restore.doneFile",
		head + `"restore": {"snapshot": "s", "target": "/t", "paths": ["a"]}}`:      "restore.paths",
		head + restoreOver + `"paths": ["a"], "deleteExtra": true}}`:                "restore.paths",
		head + restoreOver + `"paths": ["a"], "doneFile": "uid"}}`:                  "restore.paths",
		head + restoreOver + `"paths": ["a", "/b"]}}`:                               `restore.paths: "/b"`,
		`{"location": "` + strings.Repeat("x", 1<<20) + `"}`:                        "longer than",
	} {
		_, err := request.Decode(strings.NewReader(text))
		require.ErrorContains(t, err, want, "%.200s", text)
	}
}

// FuzzDecode checks that what is taken is a transfer of one volume, in a repository of one namespace.
func FuzzDecode(f *testing.F) {
	f.Add(good)
	f.Add(head + `"restore": {"snapshot": "s", "target": "/t", "overwrite": true}}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := request.Decode(strings.NewReader(text))
		if err != nil {
			return
		}
		require.NotEqual(t, r.Upload == nil, r.Restore == nil)
		require.NotContains(t, r.Namespace, "/")
		if r.Upload != nil {
			require.LessOrEqual(t, strings.Count(r.Source().Info().Path, "/"), 4)
			require.NotContains(t, r.Source().Info().Path, "..")
		}
	})
}
