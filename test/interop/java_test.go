//go:build linux

package interop

import (
	"os/exec"
	"path/filepath"
	"testing"

	"edged/test/interop/kafka"
)

// jvm are the options of every JVM here: most of them live for seconds.
var jvm = []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}

// inJava runs the driver of Kafka's own client.
func inJava(t *testing.T, j *judge) {
	for tool, pkg := range map[string]string{"javac": "default-jdk-headless", "mvn": "maven"} {
		if _, err := exec.LookPath(tool); err != nil {
			apt(t, pkg)
		}
	}
	jars := filepath.Join(kafka.Jars(t), "*")
	dir := installed(t, j.name, func(dir string) error {
		return run(dir, "javac", "-cp", jars, "Driver.java")
	})
	j.argv = append(append([]string{"java"}, jvm...), "-cp", dir+":"+jars, "Driver")
}
