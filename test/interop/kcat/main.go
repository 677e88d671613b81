// Command kcat runs kcat, and with it the librdkafka of the distribution.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"edged/test/interop/driver"
)

func main() {
	driver.Main(driver.Client{Version: version, Produce: produce, Consume: consume})
}

func version() string {
	out, err := exec.Command("kcat", "-V").CombinedOutput()
	if err != nil {
		return err.Error()
	}
	found := regexp.MustCompile(`Version (\S+) .*librdkafka (\S+)`).FindSubmatch(out)
	if found == nil {
		return "kcat unknown"
	}
	return fmt.Sprintf("kcat %s, librdkafka %s", found[1], found[2])
}

// kcat names no value in its reports, but its end does: with 0 everything has been kept.
func produce(to driver.Target, mode, codec string, lines <-chan driver.Line) error {
	args := []string{"-P", "-b", strings.Join(to.Bootstrap, ","), "-t", to.Topic, "-K", " "}
	if codec != "default" {
		args = append(args, "-z", codec)
	}
	if mode == driver.Idempotent {
		args = append(args, "-X", "enable.idempotence=true")
	}
	cmd := exec.Command("kcat", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failed := make(chan []string, 1)
	go func() { failed <- failures(stderr) }() // ends with kcat
	var sent []string
	for l := range lines {
		if _, err := fmt.Fprintf(stdin, "%s %s\n", l.Key, l.Value); err != nil {
			return fmt.Errorf("kcat takes no more: %w", err)
		}
		sent = append(sent, l.Value)
	}
	if err := stdin.Close(); err != nil {
		return err
	}
	gaveUp := <-failed
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("kcat: %w", err)
	}
	for _, why := range gaveUp {
		driver.Fail("?", errors.New(why))
	}
	if len(gaveUp) > 0 { // which were kept is not known
		return nil
	}
	for _, value := range sent {
		driver.Ack(value, -1, -1)
	}
	return nil
}

// connection is what kcat says of lost connections, which it mends by itself.
var connection = regexp.MustCompile(`^% ERROR: Local: (Broker transport failure|All broker connections are down)`)

// failures repeats what kcat says and picks out what reaches its user as an error.
func failures(stderr io.Reader) (all []string) {
	in := bufio.NewScanner(stderr)
	for in.Scan() {
		fmt.Fprintln(os.Stderr, in.Text())
		if strings.Contains(in.Text(), "Delivery failed") || strings.HasPrefix(in.Text(), "% ERROR") && !connection.MatchString(in.Text()) {
			all = append(all, in.Text())
		}
	}
	return all
}

func consume(ctx context.Context, to driver.Target, group string) error {
	args := []string{"-b", strings.Join(to.Bootstrap, ","), "-u", "-f", `rec %p %o %s\n`}
	if group == driver.NoGroup {
		args = append(args, "-C", "-t", to.Topic, "-o", "beginning")
	} else {
		args = append(args, "-X", "auto.offset.reset=earliest", "-G", group, to.Topic)
	}
	cmd := exec.Command("kcat", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout = os.Stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { // ends with kcat
		defer close(ended)
		for _, why := range failures(stderr) {
			driver.Error(errors.New(why))
		}
	}()
	select {
	case <-ctx.Done():
	case <-ended:
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("kcat has ended: %w", errors.Join(err, cmd.Wait()))
	}
	<-ended
	return cmd.Wait()
}
