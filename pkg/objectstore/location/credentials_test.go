package location

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseCredentials(t *testing.T) {
	file := "\ufeff# comment\r\n[default]\r\naws_access_key_id = A\r\nAWS_SECRET_ACCESS_KEY=b=c/d+\r\n; more\n\n[profile other]\n" +
		"region = somewhere\naws_access_key_id=O\naws_secret_access_key=P\naws_session_token=T\n[broken]\nrole_arn=x\n"
	got, err := parseCredentials([]byte(file), "default")
	require.NoError(t, err)
	require.Equal(t, accessKeys{id: "A", secret: "b=c/d+"}, got)
	got, err = parseCredentials([]byte(file), "other")
	require.NoError(t, err)
	require.Equal(t, accessKeys{id: "O", secret: "P", token: "T"}, got)
	for profile, says := range map[string]string{"absent": "[absent]", "broken": "role_arn"} {
		_, err = parseCredentials([]byte(file), profile)
		require.ErrorContains(t, err, says)
	}
	for _, bad := range []string{"", "[default", "[default]\nno equals sign", "[default]\naws_access_key_id=A"} {
		_, err = parseCredentials([]byte(bad), "default")
		require.Error(t, err, bad)
	}
}

func FuzzParseCredentials(f *testing.F) {
	f.Add("[default]\naws_access_key_id=A\naws_secret_access_key=TOPSECRET\n", "default")
	f.Add("[x\ny=z", "x")
	f.Fuzz(func(t *testing.T, file, profile string) {
		got, err := parseCredentials([]byte(file), profile)
		if err == nil && (got.id == "" || got.secret == "") {
			t.Fatal("accepted without keys")
		}
		if err != nil && !strings.Contains(profile, "TOPSECRET") && strings.Contains(err.Error(), "TOPSECRET") {
			t.Fatal("the error holds a value")
		}
	})
}
