"""Programs that run in other environments and talk in lines of JSON; none of them imports this project."""
