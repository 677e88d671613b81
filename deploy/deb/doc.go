// Command deb packs the Debian packages. It is a module of its own: what it needs is no part of edged.
package main
