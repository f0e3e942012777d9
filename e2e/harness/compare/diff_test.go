package compare

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func parseObject(t *testing.T, text string) map[string]any {
	t.Helper()
	var decoded map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &decoded))
	return decoded
}

func TestRules(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"identity and status": {
			in:   `{"kind":"ConfigMap","metadata":{"name":"a","uid":"1","resourceVersion":"2","labels":{"velero.io/backup-name":"b"}},"status":{}}`,
			want: `{"kind":"ConfigMap","metadata":{"name":"a"}}`,
		},
		"other labels stay": {
			in:   `{"kind":"ConfigMap","metadata":{"name":"a","labels":{"velero.io/backup-name":"b","app":"c"}}}`,
			want: `{"kind":"ConfigMap","metadata":{"name":"a","labels":{"app":"c"}}}`,
		},
		"allocated addresses": {
			in:   `{"kind":"Service","metadata":{},"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ports":[{"port":1,"nodePort":2}]}}`,
			want: `{"kind":"Service","metadata":{},"spec":{"clusterIPs":[null],"ports":[{"port":1}]}}`,
		},
		"headless stays headless": {
			in:   `{"kind":"Service","metadata":{},"spec":{"clusterIP":"None","clusterIPs":["None"]}}`,
			want: `{"kind":"Service","metadata":{},"spec":{"clusterIP":"None","clusterIPs":["None"]}}`,
		},
		"rules of another kind do not apply": {
			in:   `{"kind":"ConfigMap","metadata":{},"spec":{"clusterIP":"10.0.0.1","nodeName":"n"}}`,
			want: `{"kind":"ConfigMap","metadata":{},"spec":{"clusterIP":"10.0.0.1","nodeName":"n"}}`,
		},
		"token volumes": {
			in:   `{"kind":"Pod","metadata":{},"spec":{"volumes":[{"name":"kube-api-access-x7k2p"},{"name":"kube-api-access-mine"}]}}`,
			want: `{"kind":"Pod","metadata":{},"spec":{"volumes":[{"name":"kube-api-access"},{"name":"kube-api-access-mine"}]}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := parseObject(t, test.in)
			normalizeObject(got, Ignored(), nil)
			require.Equal(t, parseObject(t, test.want), got)
		})
	}
}

func TestOwnersAreComparedByNameAndLife(t *testing.T) {
	key := Key{Kind: "ConfigMap", Namespace: "n", Name: "owner"}
	child := func(uid string) map[string]any {
		return parseObject(t, `{"kind":"ConfigMap","metadata":{"namespace":"n","ownerReferences":[
			{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"`+uid+`","controller":true}]}}`)
	}
	before, after, stale := child("old"), child("new"), child("old")
	normalizeObject(before, Ignored(), map[Key]types.UID{key: "old"})
	normalizeObject(after, Ignored(), map[Key]types.UID{key: "new"})
	normalizeObject(stale, Ignored(), map[Key]types.UID{key: "new"})
	require.Empty(t, differentPaths(before, after), "the owner's new UID is not a difference")
	require.Equal(t, []string{".metadata.ownerReferences[0].uid"}, differentPaths(before, stale), "a reference to an owner that is gone is one")
}

func TestDifferencesNamePaths(t *testing.T) {
	a := parseObject(t, `{"same":[1,{"x":null}],"changed":{"deep":["a","b"]},"gone":1,"shorter":[1,2],"type":{}}`)
	b := parseObject(t, `{"same":[1,{"x":null}],"changed":{"deep":["a","c"]},"new":1,"shorter":[1],"type":[]}`)
	require.Equal(t, []string{".changed.deep[1]", ".gone", ".new", ".shorter", ".type"}, differentPaths(a, b))
}
