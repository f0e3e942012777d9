package location

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// accessKeys are what signs requests. They must never be formatted into errors or logs.
type accessKeys struct{ id, secret, token string }

// errNoProfile means that a credentials file does not have the profile.
var errNoProfile = errors.New("there is no profile")

// parseCredentials reads one profile of an AWS shared credentials file: sections in brackets, "name
// = value" lines, comments that begin with # or ;. Errors name line and setting but never a value.
func parseCredentials(data []byte, profile string) (accessKeys, error) {
	var found accessKeys
	var seen bool
	section := ""
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			name, _, ok := strings.Cut(line[1:], "]")
			if !ok {
				return accessKeys{}, fmt.Errorf("line %d: section has no closing bracket", n)
			}
			section = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), "profile "))
			seen = seen || section == profile
		case section != profile:
		default:
			if err := found.setLine(line); err != nil {
				return accessKeys{}, fmt.Errorf("line %d: %w", n, err)
			}
		}
	}
	switch {
	case lines.Err() != nil:
		return accessKeys{}, errors.New("a line is too long")
	case !seen:
		return accessKeys{}, fmt.Errorf("%w [%s]", errNoProfile, profile)
	case found.id == "" || found.secret == "":
		return accessKeys{}, fmt.Errorf("profile [%s] needs aws_access_key_id and aws_secret_access_key", profile)
	}
	return found, nil
}

func (k *accessKeys) setLine(line string) error {
	name, value, ok := strings.Cut(line, "=")
	if !ok {
		return errors.New("not of the form name = value")
	}
	name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
	switch name {
	case "aws_access_key_id":
		k.id = value
	case "aws_secret_access_key":
		k.secret = value
	case "aws_session_token":
		k.token = value
	case "role_arn", "source_profile", "credential_source", "credential_process", "web_identity_token_file", "sso_session", "sso_start_url":
		return fmt.Errorf("%s is not supported in a Secret; use keys, or the environment's credentials without spec.credential", name)
	}
	return nil
}
