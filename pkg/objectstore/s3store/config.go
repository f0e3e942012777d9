package s3store

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// ErrConfig means that a configuration key of the location is unknown, unsupported or has a bad
// value.
var ErrConfig = errors.New("invalid configuration")

// Config defines which bucket and how to reach it. ParseConfig fills what a location's config keys
// carry.
type Config struct {
	// Bucket is the bucket's name.
	Bucket string
	// Region is the bucket's region; empty means asking the server.
	Region string
	// Endpoint is the server's URL; empty means AWS.
	Endpoint string
	// PublicURL replaces Endpoint in signed URLs.
	PublicURL string
	// PathStyle puts the bucket into the path instead of the host name.
	PathStyle bool
	// InsecureSkipTLSVerify accepts any certificate of the server.
	InsecureSkipTLSVerify bool
	// CABundle is PEM of the authorities that may sign the server's certificate, besides the
	// system's.
	CABundle []byte
	// Profile selects a profile of the environment's credentials when Credentials is nil.
	Profile string
	// Credentials sign requests; nil means the SDK's chain (environment, files, instance role).
	Credentials aws.CredentialsProvider
	// Checksum is the algorithm of upload checksums; empty sends only those the protocol requires.
	Checksum types.ChecksumAlgorithm
	// ServerSideEncryption and KMSKeyID ask the server to encrypt.
	ServerSideEncryption types.ServerSideEncryption
	KMSKeyID             string
	// Tagging is a URL-encoded tag set put on every object.
	Tagging string
	// Condition keeps whether the server honours conditional creation; shared by the stores of
	// one bucket. Nil means that it does.
	Condition *Condition
}

// ParseConfig reads the config keys of Velero's aws provider (1.14 of its plugin). A key that is
// unknown, not supported or malformed is an ErrConfig naming it.
func ParseConfig(config map[string]string) (Config, error) {
	c := Config{Checksum: types.ChecksumAlgorithmCrc32}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		set, ok := settings[key]
		if !ok {
			return Config{}, fmt.Errorf("%w: unknown key %q", ErrConfig, key)
		}
		if err := set(&c, config[key]); err != nil {
			return Config{}, fmt.Errorf("%w: key %q: %w", ErrConfig, key, err)
		}
	}
	if c.KMSKeyID != "" && c.ServerSideEncryption == "" {
		c.ServerSideEncryption = types.ServerSideEncryptionAwsKms
	}
	return c, nil
}

var settings = map[string]func(*Config, string) error{
	"region":                func(c *Config, v string) error { c.Region = v; return nil },
	"profile":               func(c *Config, v string) error { c.Profile = v; return nil },
	"kmsKeyId":              func(c *Config, v string) error { c.KMSKeyID = v; return nil },
	"s3Url":                 func(c *Config, v string) error { return setURL(&c.Endpoint, v) },
	"publicUrl":             func(c *Config, v string) error { return setURL(&c.PublicURL, v) },
	"s3ForcePathStyle":      func(c *Config, v string) error { return setBool(&c.PathStyle, v) },
	"insecureSkipTLSVerify": func(c *Config, v string) error { return setBool(&c.InsecureSkipTLSVerify, v) },
	"checksumAlgorithm":     setChecksum,
	"serverSideEncryption":  setEncryption,
	"tagging":               setTagging,
	"enableSharedConfig":    func(_ *Config, v string) error { return setBool(new(bool), v) }, // always on in this SDK
	"signatureVersion": func(_ *Config, v string) error {
		if v != "4" {
			return errors.New("only signature version 4 is supported")
		}
		return nil
	},
	"customerKeyEncryptionFile":   unsupportedOption,
	"customerKeyEncryptionSecret": unsupportedOption,
}

func unsupportedOption(*Config, string) error { return errors.New("not supported yet") }

func setBool(to *bool, v string) error {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return fmt.Errorf("%q is not a boolean", v)
	}
	*to = b
	return nil
}

func setURL(to *string, v string) error {
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return errors.New("not an http or https URL")
	}
	if u.User != nil {
		return errors.New("credentials do not belong into a URL")
	}
	*to = strings.TrimSuffix(v, "/")
	return nil
}

func setChecksum(c *Config, v string) error {
	c.Checksum = types.ChecksumAlgorithm(strings.ToUpper(v))
	if v != "" && !slices.Contains([]types.ChecksumAlgorithm{
		types.ChecksumAlgorithmCrc32, types.ChecksumAlgorithmCrc32c, types.ChecksumAlgorithmSha1, types.ChecksumAlgorithmSha256,
	}, c.Checksum) {
		return fmt.Errorf("%q is none of CRC32, CRC32C, SHA1, SHA256 or empty", v)
	}
	return nil
}

func setEncryption(c *Config, v string) error {
	c.ServerSideEncryption = types.ServerSideEncryption(v)
	if !slices.Contains(c.ServerSideEncryption.Values(), c.ServerSideEncryption) {
		return fmt.Errorf("%q is none of %v", v, c.ServerSideEncryption.Values())
	}
	return nil
}

func setTagging(c *Config, v string) error {
	if _, err := url.ParseQuery(v); err != nil {
		return errors.New("not a URL-encoded tag set (key=value&key2=value2)")
	}
	c.Tagging = v
	return nil
}
