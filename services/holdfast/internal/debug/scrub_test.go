package debug

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const planted = "Planted-S3cret"

func TestTextsWithoutSecrets(t *testing.T) {
	for _, text := range []string{
		"dial nats://user:" + planted + "@host:4222 refused",
		"GET https://store/bucket/key?X-Amz-Signature=" + planted + "&X-Amz-Date=1 failed",
		`level=error msg="x" password=` + planted,
		`{"level":"info","aws_secret_access_key":"` + planted + ` and more"}`,
		`msg="sent {\"token\": \"` + planted + `\", \"n\": 1}"`,
		"secretKey: '" + planted + " x'", "AccountKey=" + planted + ";EndpointSuffix=x", "MY_API_KEY=" + planted,
		"Authorization: Bearer " + planted + ".abc", "sent bearer " + planted, "--admin-password=" + planted,
		"-----BEGIN RSA PRIVATE KEY-----\n" + planted + "\n-----END RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n" + planted,
	} {
		got := scrubText(text)
		require.NotContains(t, got, planted, text)
		require.NotContains(t, got, "and more")
		require.Contains(t, got, scrubMark)
	}
	require.NotContains(t, scrubText("eyJhbGciOi.eyJzdWIiOi."+planted), planted)
	require.NotContains(t, scrubText("key AKIAIOSFODNN7EXAMPLE"), "AKIA")
}

func TestValuesEndWhereTheyEnd(t *testing.T) {
	for text, want := range map[string]string{
		"password=S3c,LEAK next":          "password=xxxxx next",
		"password=a;L&E}A]K\"x'y next":    "password=xxxxx next",
		"pass=LEAK next":                  "pass=xxxxx next",
		"DB_PASS=LEAK next":               "DB_PASS=xxxxx next",
		"dbPass: LEAK next":               "dbPass: xxxxx next",
		"se=1&sig=LEAK%3D next":           "se=1&sig=xxxxx next",
		"password := \"LEAK LEAK\" next":  "password := xxxxx next",
		"password => 'LEAK LEAK' next":    "password => xxxxx next",
		"Authorization: Token LEAK\nnext": "Authorization: xxxxx\nnext",
		"Proxy-Authorization: Digest username=\"x\", response=\"LEAK\"\nnext": "Proxy-Authorization: xxxxx\nnext",
		"run --password LEAK next":                                  "run --password xxxxx next",
		"run -password 'LEAK LEAK' next":                            "run -password xxxxx next",
		"run --db-pass LEAK next":                                   "run --db-pass xxxxx next",
		"[\"--password\",\"LEAK LEAK\",\"next\"]":                   "[\"--password\",xxxxx,\"next\"]",
		"password=\"LEAK more\nnext":                                "password=xxxxx\nnext",
		"password='LEAK more\nnext":                                 "password=xxxxx\nnext",
		"password=\"a\nLEAK\" next":                                 "password=xxxxx next",
		`password="a\"LEAK" next`:                                   `password=xxxxx next`,
		`password="a\\" next`:                                       `password=xxxxx next`,
		`"{\"password\":\"a\\\"LEAK\",\"n\":1}"`:                    `"{\"password\":xxxxx,\"n\":1}"`,
		`"{\\\"password\\\":\\\"LEAK LEAK\\\",x"`:                   `"{\\\"password\\\":xxxxx,x"`,
		`msg="password=\"LEAK more" next`:                           `msg="password=xxxxx next`,
		`"tokens": ["LEAK a", "LEAK b"] next`:                       `"tokens": xxxxx next`,
		"tokens: [LEAK a\nnext":                                     "tokens: xxxxx\nnext",
		"password=LEAK\tnext":                                       "password=xxxxx\tnext",
		"password=\\":                                               "password=xxxxx",
		"seed SUAM" + strings.Repeat("LEAK2345", 6) + "LEAKLE next": "seed xxxxx next",
		"password=": "password=",
	} {
		require.Equal(t, want, scrubText(text), text)
	}
}

// A key of which the beginning was cut off stood there to its end.
func TestTheRestOfAPrivateKeyGoes(t *testing.T) {
	const begin, end = "-----BEGIN RSA PRIVATE KEY-----\n", "-----END RSA PRIVATE KEY-----"
	for text, want := range map[string]string{
		"LEAK\nLEAK\n" + end + "\nafter":                           "xxxxx\nafter",
		"t=1 LEAK\nt=1 LEAK\nt=1 -----END PRIVATE KEY-----\nafter": "xxxxx\nafter",
		end: "xxxxx",
		"LEAK\n" + end + "\nbetween\n" + begin + "LEAK\n" + end + "\nafter":                    "xxxxx\nbetween\nxxxxx\nafter",
		"before\n" + begin + "LEAK\n" + end + "\nafter":                                        "before\nxxxxx\nafter",
		"LEAK\n-----END CERTIFICATE-----\nLEAK\n-----END EC PRIVATE KEY-----":                  "xxxxx",
		"before\nLEAK" + strings.Repeat("\nLEAK2345", 32<<10/9) + "\nLEAK\n" + end + "\nafter": "before\nxxxxx\nafter",
	} {
		require.Equal(t, want, scrubText(text), "%.80q", text)
	}
	require.Equal(t, "-----END CERTIFICATE-----", scrubText("-----END CERTIFICATE-----"))
}

func TestTextsWithoutSecretsStay(t *testing.T) {
	for _, text := range []string{
		`time=2026 level=INFO msg="backup completed" backup=velero/daily items=12`, "https://minio.example.com:9000/bucket", "nats://host:4222", "", "no key here",
		"12 tests passed=12, failed: 0", "signal: terminated", "the password was refused", "nats: Authorization Violation", "authorization failed", "--features EnableCSI",
		"SUCCEEDED", "a pass over 12 items", `{"level":"info","phase":"Completed","items":[1,2]}`, "apiVersion: rbac.authorization.k8s.io/v1",
	} {
		require.Equal(t, text, scrubText(text))
	}
	require.Contains(t, scrubText("before\npassword=x\nafter"), "\nafter", "only the value goes")
}

func scrubJSON(t *testing.T, text string) (map[string]any, string) {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(text, "PLANTED", planted)), &object))
	scrubObject(object)
	out, err := json.Marshal(object)
	require.NoError(t, err)
	return object, string(out)
}

func TestObjectsWithoutSecrets(t *testing.T) {
	for name, text := range map[string]string{
		"annotation":  `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"spec\":\"PLANTED\"}","pre.hook.backup.velero.io/command":"[\"PLANTED\"]"}}}`,
		"template":    `{"spec":{"template":{"metadata":{"annotations":{"vault.hashicorp.com/agent-inject-template":"PLANTED"}}}}}`,
		"claims":      `{"spec":{"volumeClaimTemplates":[{"metadata":{"annotations":{"any":{"x":"PLANTED"}}}}]}}`,
		"managed":     `{"metadata":{"managedFields":[{"fieldsV1":"PLANTED"}]}}`,
		"config":      `{"spec":{"config":{"region":"eu","customKey":"PLANTED"}}}`,
		"url":         `{"spec":{"config":{"s3Url":"https://user:PLANTED@store"}}}`,
		"env":         `{"spec":{"containers":[{"env":[{"name":"ANY","value":"PLANTED"}]}]}}`,
		"args":        `{"spec":{"containers":[{"args":["--x-token=PLANTED","PLANTED"],"command":["/bin/sh","-c","PLANTED"]}]}}`,
		"spaces":      `{"spec":{"containers":[{"args":["--password=a PLANTED","--db-pass=\"a\" PLANTED","--nats-token","PLANTED"]}]}}`,
		"pass":        `{"spec":{"dbPass":"PLANTED"}}`,
		"hook":        `{"spec":{"hooks":{"resources":[{"pre":[{"exec":{"command":["mysql","-pPLANTED"]}}]}]}}}`,
		"download":    `{"status":{"downloadURL":"https://store/PLANTED"}}`,
		"key":         `{"spec":{"adminPassword":"PLANTED","tokens":["PLANTED"]}}`,
		"secret":      `{"kind":"Secret","data":{"a":"PLANTED"},"stringData":{"b":"PLANTED"},"metadata":{"name":"s"}}`,
		"message":     `{"status":{"message":"cannot reach https://u:PLANTED@host"}}`,
		"data mover":  `{"spec":{"dataMoverConfig":{"x":"PLANTED"}}}`,
		"header":      `{"spec":{"httpHeaders":[{"name":"X","value":"PLANTED"}]}}`,
		"nested list": `{"spec":{"a":[[{"password":"PLANTED"}]]}}`,
	} {
		_, out := scrubJSON(t, text)
		require.NotContains(t, out, planted, name)
	}
}

func TestWhatHelpsStays(t *testing.T) {
	object, out := scrubJSON(t, `{"kind":"BackupStorageLocation","metadata":{"name":"default","annotations":{"holdfast.io/object-store":"plugin"}},
		"spec":{"provider":"aws","config":{"region":"eu","s3Url":"https://store:9000"},"credential":{"name":"keys","key":"cloud"},"objectStorage":{"bucket":"b","prefix":"p"}},
		"status":{"phase":"Unavailable","message":"no route to host"},"template":{"volumes":[{"secret":{"secretName":"tls"}}],"containers":[{"args":["--features=EnableCSI","--nats-creds-file=/nats/creds"]}]}}`)
	require.Equal(t, "default", object["metadata"].(map[string]any)["name"])
	for _, kept := range []string{`"region":"eu"`, `"s3Url":"https://store:9000"`, `"name":"keys"`, `"key":"cloud"`, `"bucket":"b"`, "no route to host", `"secretName":"tls"`, "--features=EnableCSI", `"holdfast.io/object-store":"plugin"`} {
		require.Contains(t, out, kept)
	}
}
