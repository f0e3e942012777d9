package proto

import (
	_ "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
)
