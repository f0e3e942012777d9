package request_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/request"
)

func TestOpenLocation(t *testing.T) {
	const location = `
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: default, namespace: velero}
spec: {provider: aws, config: {region: r, s3Url: "http://127.0.0.1:1"}, objectStorage: {bucket: b}, credential: {name: keys, key: cloud}}
`
	const secret = `
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {cloud: "[default]\naws_access_key_id=a\naws_secret_access_key=b\n"}
`
	for name, c := range map[string]struct{ text, want string }{
		"whole":         {location + "---" + secret, ""},
		"no Secret":     {location, "keys"},
		"no location":   {secret, "there is no BackupStorageLocation"},
		"two locations": {location + "---" + location, "a second"},
		"unknown field": {strings.Replace(location, "provider", "misspelt: x, provider", 1), "misspelt"},
		"no manifest":   {"hello", "kind"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "location.yaml")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			store, err := request.OpenLocation(t.Context(), path)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.NoError(t, store.Close())
		})
	}
}
